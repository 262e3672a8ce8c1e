#!/bin/sh
# Installs slirp4netns from the system's packages, where it is missing and we may.
# Never fails for want of permission: it says what is missing and what that costs.
set -u

if command -v slirp4netns >/dev/null 2>&1; then
    exit 0
fi

say() {
    echo "slirp4netns is missing: scenarios with a network provider will be skipped ($1)" >&2
}

if [ "$(id -u)" -eq 0 ]; then
    as_root=
elif sudo -n true 2>/dev/null; then
    as_root="sudo -n"
else
    say "install it with your package manager"
    exit 0
fi

if command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    $as_root apt-get -qq install -y slirp4netns >/dev/null 2>&1 || {
        # The lists of a fresh machine are empty or old.
        $as_root apt-get -qq update >/dev/null 2>&1
        $as_root apt-get -qq install -y slirp4netns >/dev/null 2>&1
    }
elif command -v dnf >/dev/null 2>&1; then
    $as_root dnf -q install -y slirp4netns >/dev/null 2>&1
elif command -v apk >/dev/null 2>&1; then
    $as_root apk add --quiet slirp4netns >/dev/null 2>&1
elif command -v pacman >/dev/null 2>&1; then
    $as_root pacman -S --noconfirm --quiet slirp4netns >/dev/null 2>&1
elif command -v zypper >/dev/null 2>&1; then
    $as_root zypper --quiet --non-interactive install slirp4netns >/dev/null 2>&1
fi

command -v slirp4netns >/dev/null 2>&1 || say "the package manager did not bring it"
exit 0
