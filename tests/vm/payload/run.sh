#!/bin/sh
# What is done in each guest, as root and as an ordinary user: ./steps, whose results go to out/{root,user}.
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

for who in root user; do
    folder=$PWD/out/$who
    mkdir -p "$folder"
    if [ "$who" = root ]; then
        ./steps "$bin" "$PWD/policy.json" "$folder"
    else
        chown tester: "$folder"
        as-user $confine ./steps "$bin" "$PWD/policy.json" "$folder"
    fi || exit 1
done
