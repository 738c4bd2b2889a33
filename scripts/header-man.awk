# A public header as a manual page of section 3: its opening comment, the functions, then its
# declarations with their comments as they stand. Variables: header ("plan"), version, date,
# example (1: there is one).

function escaped(line) {
    gsub(/\\/, "\\e", line)
    gsub(/-/, "\\-", line)
    gsub(/…/, "...", line)
    sub(/^[.']/, "\\\\\\&&", line)
    return line
}

# A section, whose first paragraph needs no macro.
function section(title) {
    print ".SH " title
    parted = 1
    waiting = 0
}

# A paragraph begins with the next line of text or code.
function paragraph() { waiting = !parted }

function begin_line() {
    if (waiting)
        print ".PP"
    waiting = parted = 0
}

function close_code() {
    if (in_code)
        print ".fi\n.RE"
    in_code = 0
}

# A line of a comment: text, or code where it is indented.
function say(line) {
    if (line ~ /^    /) {
        if (!in_code) {
            paragraph()
            begin_line()
            print ".RS 4\n.nf"
        }
        in_code = 1
        print escaped(substr(line, 5))
    } else if (line == "") {
        close_code()
        paragraph()
    } else {
        close_code()
        begin_line()
        print escaped(line)
    }
}

function flush_code(    i, last) {
    while (code_count > 0 && code[code_count] == "")
        code_count--
    if (code_count > 0) {
        paragraph()
        begin_line()
        print ".nf"
        for (i = 1; i <= code_count; i++)
            print escaped(code[i])
        print ".fi"
    }
    code_count = 0
}

# Text of a comment that begins at the top level, without its signs.
function comment_text(line) {
    sub(/^\/\* ?/, "", line)
    sub(/^ \*\/$/, "", line)
    sub(/^ \* ?/, "", line)
    sub(/ *\*\/$/, "", line)
    return line
}

BEGIN { state = "opening" }

# The first sentence of the opening comment names the page.
state == "opening" {
    if ($0 ~ /^ \*\//) {
        state = "includes"
        next
    }
    if ($0 !~ /^\/\*/)
        opening[++opening_count] = comment_text($0)
    next
}

/^#ifdef ERGON_EXPERIMENTAL/ { code[++code_count] = "/* Experimental: with ERGON_EXPERIMENTAL defined. */"; next }
continued { continued = /\\$/; next }
/^#define .*\\$/ { continued = 1; next }
/^#define ERG_[A-Z_]+ / { code[++code_count] = $0; next }
/^#ifdef __(cplusplus|GNUC__)/ { skipped = 1; next }
/^#/ { if ($0 ~ /^#endif/) skipped = 0; next }
skipped { next }

# A comment at the top level.
depth == 0 && /^\/\*/ {
    body[++body_count] = "comment"
    in_comment = 1
}
in_comment {
    body[++body_count] = "t" comment_text($0)
    if ($0 ~ /\*\//)
        in_comment = 0
    next
}
{
    plain = $0
    gsub(/\/\*.*/, "", plain)
    depth += gsub(/{/, "{", plain) - gsub(/}/, "}", plain)
    body[++body_count] = "c" $0
    if (depth == 0 && plain ~ /^[a-z].*erg_[a-z_0-9]+\(/ && plain !~ /^typedef/) {
        name = plain
        sub(/\(.*/, "", name)
        sub(/.*[ *]/, "", name)
        names[++name_count] = name
    }
}

END {
    print ".\\\" Made from include/ergon/" header ".h."
    printf ".TH ERGON_%s 3 %s \"ergon %s\" \"ergon manual\"\n", toupper(header), date, version
    first = ""
    for (i = 1; i <= opening_count && opening[i] != ""; i++)
        first = first (first == "" ? "" : " ") opening[i]
    brief = first
    sub(/^[A-Za-z ]+: /, "", brief)
    sub(/[.:;]( .*)?$/, "", brief)
    printf ".SH NAME\nergon_%s", header
    for (k = 1; k <= name_count; k++)
        printf ", %s", names[k]
    printf " \\- %s\n", escaped(brief)
    printf ".SH SYNOPSIS\n.nf\n.B #include <ergon/%s.h>\n.PP\n", header
    print "cc \\fIPROGRAM\\fR.c $(pkg\\-config \\-\\-cflags \\-\\-libs ergon)\n.fi"
    section("DESCRIPTION")
    for (i = 1; i <= opening_count; i++)
        say(opening[i])
    close_code()
    section("DECLARATIONS")
    for (i = 1; i <= body_count; i++) {
        kind = substr(body[i], 1, 1)
        if (body[i] == "comment") {
            flush_code()
            paragraph()
        } else if (kind == "t") {
            say(substr(body[i], 2))
        } else {
            close_code()
            if (code_count > 0 || body[i] != "c")
                code[++code_count] = substr(body[i], 2)
        }
    }
    close_code()
    flush_code()
    if (example) {
        print ".SH EXAMPLE"
        printf "examples/c/%s.c, and the same in Python: examples/python/%s.py\n", header, header
    }
    print ".SH SEE ALSO\n.BR ergon (1)"
}
