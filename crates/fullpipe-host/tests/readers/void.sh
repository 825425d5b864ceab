# As Void's core-services/08-sysctl.sh: the first file of each name, by a directory of links.
mkdir -p /run/vsysctl.d
for directory in /run/sysctl.d /etc/sysctl.d /usr/local/lib/sysctl.d /usr/lib/sysctl.d; do
    for i in "$directory"/*.conf; do
        name=${i##*/}
        if [ -e "$i" ] && [ ! -e "/run/vsysctl.d/$name" ]; then ln -s "$i" "/run/vsysctl.d/$name"; fi
    done
done
for i in /run/vsysctl.d/*.conf; do
    sysctl -p "$i"
done
rm -rf /run/vsysctl.d
sysctl -p /etc/sysctl.conf
