#!/bin/sh
# The Debian packages: their names, what they need and hold, and nothing enabled. Where debootstrap
# is and root runs this, they are installed in a bare Debian of this release, used, and purged.
# Usage: test_packages.sh BUILD_FOLDER CPACK
set -eu

build=$(readlink -f "$1")
cpack=$2
work=$(mktemp -d)
root=$work/root
end() {
    umount "$root/proc" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap end EXIT
fail() {
    echo "$1"
    exit 1
}
command -v dpkg-shlibdeps >/dev/null || {
    echo "skipped: no dpkg-shlibdeps here, which tells packages what they need"
    exit 77
}

(cd "$build" && "$cpack" -B "$work/packages" >"$work/log" 2>&1) || {
    cat "$work/log"
    exit 1
}
cd "$work/packages"
names="ergon ergond libergon libergon-dev python3-ergon"
for name in $names; do
    package=$(echo "${name}"_*.deb)
    [ -f "$package" ] || fail "there is no package $name"
    dpkg-deb -c "$package" >"$work/files"
    if grep -v ' \./\(usr/.*\)\?$' "$work/files" | grep -qv ' -> '; then
        fail "$name has files outside of /usr: $(grep -v ' \./usr/' "$work/files")"
    fi
    grep -q " ./usr/share/doc/$name/copyright" "$work/files" || fail "$name has no copyright"
    if grep -q '\.wants/' "$work/files"; then
        fail "$name enables a unit"
    fi
done
needs() {
    dpkg-deb -f "$(echo "$1"_*.deb)" Depends | grep -q "$2" || fail "$1 does not need $2"
}
needs ergon "libergon (= "
needs ergon libsqlite3-0
needs ergond "ergon (= "
needs libergon-dev "libergon (= "
dpkg-deb -c ergond_*.deb | grep -q ./usr/lib/systemd/system/ergond.socket || fail "ergond has no unit"
dpkg-deb -c ergon_*.deb >"$work/files"
for file in lib/systemd/system/ergon-schedule.service share/man/man1/ergon-schedule.1 \
    share/doc/ergon/examples/live/live.yaml; do
    grep -q "./usr/$file" "$work/files" || fail "ergon has no $file"
done

if ! command -v debootstrap >/dev/null || [ "$(id -u)" -ne 0 ]; then
    echo "not installed in a bare Debian: this needs debootstrap, and root"
    exit 0
fi
. /etc/os-release
mirror=$(apt-get indextargets --format '$(SITE)' | head -n 1)
debootstrap --variant=minbase "$VERSION_CODENAME" "$root" "$mirror" >"$work/log" 2>&1 || {
    tail -n 20 "$work/log"
    fail "no bare Debian could be made"
}
inside() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
        HOME=/root "$@"
}
mount -t proc proc "$root/proc"
inside find / -xdev -path /proc -prune -o -name '*ergon*' -print >"$work/before"
cp ./*.deb "$root/root"
inside sh -c 'apt-get -q update && apt-get -qy --no-install-recommends install /root/*.deb' \
    >"$work/log" 2>&1 || {
    tail -n 20 "$work/log"
    fail "the packages cannot be installed"
}
rm "$root"/root/*.deb
[ "$(inside ergon --version)" = "$("$build/ergon" --version)" ] || fail "another version runs"
inside ergon memory /usr/share/doc/ergon/examples/quickstart.yaml >"$work/log" 2>&1 || {
    cat "$work/log"
    fail "the installed program does not find its data"
}
inside python3 -c 'import ergon; print(ergon.version())' >"$work/log" 2>&1 || {
    cat "$work/log"
    fail "Python does not import the installed package"
}
inside sh -c 'ldconfig -p | grep -q libergon.so.0' || fail "the loader does not know the library"
inside sh -c 'ls /etc/systemd/system/*/ergon* 2>/dev/null' && fail "a unit is enabled"
# shellcheck disable=SC2086
inside apt-get -qy purge $names >"$work/log" 2>&1 || {
    tail -n 20 "$work/log"
    fail "the packages cannot be removed"
}
inside find / -xdev -path /proc -prune -o -name '*ergon*' -print | grep -v '/var/lib/apt\|/var/log' \
    >"$work/after" || true
cmp -s "$work/before" "$work/after" || fail "they leave $(cat "$work/after")"
echo "installed, used and purged in a bare Debian"
