# Reads public headers as clang-format lays them out, and prints a C program that prints what a program
# is compiled against: constants, sizes of structs, offset, size and type of their members, functions.

BEGIN {
    skipped = 0
    text = ""
}

# What only C++ sees, and lines of the preprocessor.
/^#ifdef __cplusplus/ { skipped = 1 }
/^#/ {
    if ($0 ~ /^#endif/)
        skipped = 0
    if ($0 ~ /^#define ERG_[A-Z_]+ +[0-9]+ *$/)
        constants[++constant_count] = $2
    if ($0 ~ /^#define .*\\$/)
        continued = 1
    next
}
skipped { next }
continued {
    continued = /\\$/
    next
}
{ text = text " " $0 }

function trimmed(part) {
    gsub(/[ \t]+/, " ", part)
    sub(/^ /, "", part)
    sub(/ $/, "", part)
    return part
}

# "const char *" and "name" of a declarator; arrays keep their size with the type.
function add_member(struct, type, declarator,    stars, array, name) {
    name = trimmed(declarator)
    stars = ""
    while (name ~ /^\*/) {
        stars = stars "*"
        name = trimmed(substr(name, 2))
    }
    array = ""
    if (match(name, /\[.*/)) {
        array = substr(name, RSTART)
        name = substr(name, 1, RSTART - 1)
    }
    member(struct, name, trimmed(type (stars != "" ? " " stars : "")) array)
}

function member(struct, name, type) {
    printf "    printf(\"member %s.%s %%zu %%zu %s\\n\", offsetof(struct %s, %s), " \
           "sizeof(((struct %s *)0)->%s));\n", struct, name, type, struct, name, struct, name
}

function add_members(struct, body,    lines, count, i, at, parts, k, type) {
    count = split(body, lines, ";")
    for (i = 1; i <= count; i++) {
        at = trimmed(lines[i])
        if (at == "")
            continue
        if (match(at, /\(\*[a-z_0-9]+\)/)) { # a pointer to a function
            member(struct, substr(at, RSTART + 2, RLENGTH - 3), at)
            continue
        }
        k = split(at, parts, ",")
        # The first declarator begins behind the last word of the type.
        match(parts[1], /[* ]+[a-z_0-9]+(\[.*\])?$/)
        type = trimmed(substr(parts[1], 1, RSTART - 1))
        add_member(struct, type, substr(parts[1], RSTART))
        for (at = 2; at <= k; at++)
            add_member(struct, type, parts[at])
    }
}

function add_constants(body,    parts, count, i, name) {
    count = split(body, parts, ",")
    for (i = 1; i <= count; i++) {
        name = trimmed(parts[i])
        sub(/ *=.*/, "", name)
        if (name != "")
            constants[++constant_count] = name
    }
}

function statement(at,    head, body, open) {
    at = trimmed(at)
    gsub(/ERG_PRINTF\([0-9, ]*\)/, "", at)
    at = trimmed(at)
    open = index(at, "{")
    head = trimmed(open ? substr(at, 1, open - 1) : at)
    body = substr(at, open + 1)
    sub(/}[^}]*$/, "", body)
    if (open && head ~ /^struct [a-z_0-9]+$/) {
        sub(/^struct /, "", head)
        printf "    printf(\"struct %s %%zu\\n\", sizeof(struct %s));\n", head, head
        add_members(head, body)
    } else if (open && head ~ /^enum/) {
        add_constants(body)
    } else if (at ~ /\(/) {
        printf "    puts(\"%s %s\");\n", at ~ /^typedef/ ? "type" : "function", at
    }
}

END {
    # Comments, which have no quotes that matter here.
    plain = ""
    while ((at = index(text, "/*")) > 0) {
        plain = plain substr(text, 1, at - 1) " "
        text = substr(text, at + 2)
        text = substr(text, index(text, "*/") + 2)
    }
    plain = plain text
    print "#define ERGON_EXPERIMENTAL"
    print "#include <ergon/ergon.h>"
    print "#include <stddef.h>"
    print "#include <stdio.h>"
    print "int main(void)\n{"
    depth = 0
    part = ""
    count = split(plain, characters, "")
    for (i = 1; i <= count; i++) {
        c = characters[i]
        depth += (c == "{") - (c == "}")
        if (c == ";" && depth == 0) {
            statement(part)
            part = ""
        } else {
            part = part c
        }
    }
    for (i = 1; i <= constant_count; i++)
        printf "    printf(\"constant %s %%lld\\n\", (long long)%s);\n", constants[i], constants[i]
    print "    return 0;\n}"
}
