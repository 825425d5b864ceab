# As sysvinit's old /etc/init.d/procps.
sysctl -q -p /etc/sysctl.conf
