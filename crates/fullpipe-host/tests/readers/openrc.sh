# As OpenRC's init.d/sysctl on Linux.
sysctl -q --system
