#!/bin/sh
# What is done in each guest: ./steps as root, as an ordinary user in a login session, and, but for the matrix, as that user in a
# unit with control groups of its own. The results go to out/{root,user,delegated}.
set -u
export NO_COLOR=1
bin=$PWD/bin
chmod 755 steps

# In this shape the user is confined by a profile that gives no capability, within namespaces of the user's own neither.
confine=
case $(cat guest) in
    *-apparmor)
        apparmor_parser --replace restricted.apparmor || exit 1
        confine="aa-exec --profile restricted --"
        # Where the profile that the project ships looks for it.
        bin=/usr/local/bin
        install -m 755 "$PWD/bin/runner" "$PWD/bin/verify" "$bin" || exit 1
        ;;
esac

mkdir -p out/root out/user out/delegated
chown tester: out/user out/delegated
./steps "$bin" "$PWD/out/root" "$PWD/policy.json" "$PWD/systemd-run.json" || exit 1
as-user $confine ./steps "$bin" "$PWD/out/user" "$PWD/policy.json" || exit 1
as-delegated $confine ./steps "$bin" "$PWD/out/delegated" || exit 1

# The same user, confined as before, with the profile for the runner. It needs a newer parser than the image has; its library and
# linker are of another suite than the image, too.
[ -n "$confine" ] || exit 0
mkdir -p out/profiled
chown tester: out/profiled
parser=$PWD/parser
"$parser/ld-linux-x86-64.so.2" --library-path "$parser" "$parser/apparmor_parser" --base "$parser/apparmor.d" --skip-cache \
    --replace "$PWD/runner.apparmor" || exit 1
as-user $confine ./steps "$bin" "$PWD/out/profiled" "$PWD/policy.json" || exit 1
