#!/bin/sh
# A probe of a third party: can the workload see whose home folders there are? It looks, and changes nothing.
#
#     probe.sh FOLDER < parameters
#
# One line for each check of its row in suite.json; docs/probes.md has the form.
LC_ALL=C
export LC_ALL

# What the runner planted for this run comes by standard input, up to `end`. This probe needs none of it.
while read -r parameter && [ "$parameter" != end ]; do :; done

say() { # RESULT ERRNO DETAIL
    printf 'probe=homes dimension=filesystem check=homes result=%s errno=%s twin=%s detail=%s\n' "$1" "$2" "$twin" "$3"
}

# The twin: a folder that may be listed. When that fails too, a refusal below says nothing.
if ls "${0%/*}" >/dev/null 2>&1; then twin=ok; else twin=failed; fi

if found=$(ls "$1" 2>&1); then
    count=$(printf %s "$found" | grep -c .)
    if [ "$count" -gt 0 ]; then
        say escaped none "$count names in $1"
    else
        say contained none "$1 is empty"
    fi
else
    case $found in
        *'No such file'*) say contained ENOENT "$1" ;;
        *'Permission denied'*) say contained EACCES "$1" ;;
        *'not permitted'*) say contained EPERM "$1" ;;
        *) say error none "$1 cannot be listed, for a reason that is not known here" ;;
    esac
fi
