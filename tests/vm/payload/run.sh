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
        ;;
esac

mkdir -p out/root out/user out/delegated
chown tester: out/user out/delegated
./steps "$bin" "$PWD/out/root" "$PWD/policy.json" || exit 1
as-user $confine ./steps "$bin" "$PWD/out/user" "$PWD/policy.json" || exit 1
as-delegated $confine ./steps "$bin" "$PWD/out/delegated" || exit 1
