#!/bin/sh
# collect_text.sh FOLDER: gathers text of this machine (manuals, documentation, licences) into FOLDER/train.txt and FOLDER/validation.txt.
#
# Files with the same content are taken once; a file belongs to one of the two as a whole, by its checksum. Printable ASCII is kept, and of
# manual pages only the lines that are text. At most LIMIT bytes; where the machine has less than ENOUGH, perl's manual is installed.
set -eu

folder=${1:?usage: collect_text.sh FOLDER}
LIMIT=${LIMIT:-8000000}
ENOUGH=${ENOUGH:-3000000}
install=${INSTALL:-}
mkdir -p "$folder"

# Every candidate file, in the order of its checksum: an order that has nothing to do with names or folders.
candidates() {
    find /usr/share/doc /usr/share/man/man[1-8] /usr/share/common-licenses /usr/share/perl /usr/share/info /usr/share/games/fortunes \
        -type f -size +3 -size -800 \
        \( -path '/usr/share/man/*' -o -path '/usr/share/common-licenses/*' -o -name '*.pod' -o -name '*.txt' -o -name '*.txt.gz' \
        -o -name '*.md' -o -name '*.md.gz' -o -name 'README*' -o -name 'NEWS*' -o -name 'FAQ*' -o -name '*.info.gz' -o -name '*.rst' \
        -o -name copyright -o -path '*/fortunes/*' \) ! -name '*.dat' 2>/dev/null |
        tr '\n' '\0' | xargs -0 -r sha256sum 2>/dev/null | sort | awk '!seen[$1]++' | cut -c 67-
}

# text FILE: what of it is text.
text() {
    case $1 in
    /usr/share/man/*) gzip -dcf "$1" | sed -e "/^[.']/d" -e 's/\\-/-/g' -e 's/\\f[A-Z]//g' -e 's/\\&//g' ;;
    *) gzip -dcf "$1" ;;
    esac 2>/dev/null | LC_ALL=C tr -cd '\11\12\40-\176'
}

collect() {
    : >"$folder/train.txt"
    : >"$folder/validation.txt"
    : >"$folder/checksums"
    total=0 files=0
    candidates >"$folder/candidates"
    while IFS= read -r file; do
        text "$file" >"$folder/one"
        size=$(wc -c <"$folder/one")
        [ "$size" -ge 1000 ] || continue
        sum=$(sha256sum <"$folder/one")
        sum=${sum%% *}
        if grep -q "$sum" "$folder/checksums"; then continue; fi
        echo "$sum" >>"$folder/checksums"
        # One file in sixteen is held out.
        case $sum in 0*) to=validation ;; *) to=train ;; esac
        cat "$folder/one" >>"$folder/$to.txt"
        total=$((total + size)) files=$((files + 1))
        [ "$total" -lt "$LIMIT" ] || break
    done <"$folder/candidates"
    rm -f "$folder/one" "$folder/candidates" "$folder/checksums"
}

collect
if [ "$total" -lt "$ENOUGH" ] && [ -n "$install" ]; then
    $install perl-doc
    collect
fi
printf 'collected %d files: %d bytes to train on, %d held out\n' "$files" "$(wc -c <"$folder/train.txt")" "$(wc -c <"$folder/validation.txt")"
