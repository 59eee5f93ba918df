# One day in the life of a guest: day.sh IMAGE MOUNTPOINT DAY. Runs in a mount namespace
# of its own, so that nothing stays mounted whatever becomes of it.
set -eu
image=$1 root=$2 day=$3
mkdir -p "$root"
mount -o loop "$image" "$root"
mount -t proc proc "$root/proc"
mount -t devtmpfs dev "$root/dev"
cp /etc/resolv.conf "$root/etc/resolv.conf"
if [ "$day" = 1 ]; then
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # no service is to start
	chmod 755 "$root/usr/sbin/policy-rc.d"
	export DEBIAN_FRONTEND=noninteractive LC_ALL=C
	chroot "$root" apt-get update -qq
	chroot "$root" apt-get install -y -qq --no-install-recommends nginx git sqlite3 tcpdump
fi
chroot "$root" python3 - "$day" <"${0%/*}/changes.py"
sync
umount "$root/dev" "$root/proc"
fstrim "$root"
umount "$root"
