# As OpenWrt's /etc/init.d/sysctl: its defaults are left out.
for CONF in /etc/sysctl.d/*.conf /etc/sysctl.conf; do
    [ -f "$CONF" ] && sysctl -e -p "$CONF"
done
