# As Alpine's /etc/init.d/sysctl.
for f in /lib/sysctl.d/*.conf \
    /usr/lib/sysctl.d/*.conf; do
    if [ -f /etc/sysctl.d/"${f##*/}" ]; then continue; fi
    if [ -f /run/sysctl.d/"${f##*/}" ]; then continue; fi
    [ ! -f "$f" ] || sysctl -q -p "$f"
done
for f in /etc/sysctl.d/*.conf; do
    if [ -f /run/sysctl.d/"${f##*/}" ]; then continue; fi
    [ ! -f "$f" ] || sysctl -q -p "$f"
done
if [ -f /etc/sysctl.conf ]; then
    sysctl -q -p /etc/sysctl.conf
fi
for f in /run/sysctl.d/*.conf; do
    [ ! -f "$f" ] || sysctl -q -p "$f"
done
