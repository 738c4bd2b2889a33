# Prints the functions of src/ that neither main() nor a name of include/ergon/ reaches, by name: what
# stands at the top level of a file, as clang-format lays it out, is a node that refers to all words
# in it. Names of static ones are of their file. What only tests reach is printed, too.

# Takes comments, strings and characters out of a line, and ERG_OPS(NAME), or RUN_OPS(NAME, where one is
# called, for erg_ops_NAME.
function code(line,    out, at) {
    out = ""
    while (match(line, /(ERG|RUN)_OPS\([a-z_0-9]+[,)]/))
        line = substr(line, 1, RSTART - 1) "erg_ops_" \
               substr(line, RSTART + 8, RLENGTH - 9) " " substr(line, RSTART + RLENGTH)
    while (line != "") {
        if (commented) {
            at = index(line, "*/")
            if (!at)
                return out
            line = substr(line, at + 2)
            commented = 0
            continue
        }
        at = match(line, /"([^"\\]|\\.)*"|'([^'\\]|\\.)+'|\/\*|\/\//)
        if (!at)
            return out line
        out = out substr(line, 1, at - 1) " "
        if (substr(line, at, 2) == "//")
            return out
        commented = substr(line, at, 2) == "/*"
        line = substr(line, at + RLENGTH)
    }
    return out
}

function last_word(text,    count, words) {
    count = split(text, words, /[^A-Za-z0-9_]+/)
    while (count && words[count] == "")
        count--
    return count ? words[count] : ""
}

# What the text of a node defines: a variable of a type defined with it, or through a pointer to
# functions, else the word before the first parenthesis or bracket.
function name_of(text,    head) {
    head = text
    sub(/[{=;].*/, "", head)
    if (match(head, /\( *\* *(const)? *[A-Za-z0-9_]+/))
        return last_word(substr(head, RSTART, RLENGTH))
    if (head ~ /^ *((extern|static|typedef) )*(struct|enum|union) [a-z_0-9]* *$/ &&
        text ~ /}[ *]*[A-Za-z0-9_]+[^}]*$/) {
        sub(/.*}/, "", text)
        sub(/[\[;=].*/, "", text)
        return last_word(text)
    }
    sub(/[(\[].*/, "", head)
    return last_word(head)
}

# The node of `text`: its name, whether it is a function, and the words that it refers to.
function finish(text,    name, node, words, count, i, own) {
    gsub(/__attribute__ *\(\([^;{]*\)\)/, " ", text)
    name = name_of(text)
    if (name == "")
        return
    own = text ~ /^ *([a-z]+ )*static / && FILENAME !~ /\.c?u?h$/
    node = (own ? FILENAME : "") ":" name
    if (text ~ /^ *[A-Z][A-Z0-9_]* *\(/) { # a macro here makes names that are not in the text
        node = FILENAME ":" name "()"
        name = ""
        root[node] = 1
    } else if (text ~ /^[^=;{]*\([^=;]*\)[^=;(]*{/) {
        if (!own)
            where[node] = FILENAME
    } else if (text !~ /[{=]/ && text ~ /\(/ && FILENAME !~ /^include\//)
        return # a declaration
    if (FILENAME ~ /^include\//)
        root[node] = 1
    count = split(text, words, /[^A-Za-z0-9_]+/)
    for (i = 1; i <= count; i++)
        if (words[i] ~ /^[A-Za-z_]/ && words[i] != name && !((node, words[i]) in seen)) {
            seen[node, words[i]] = 1
            refers[node] = refers[node] " " FILENAME ":" words[i]
        }
    known[node] = 1
}

FNR == 1 { text = ""; depth = 0; commented = 0; macro = 0 }
{
    line = code($0)
    if (macro || (depth == 0 && line ~ /^#/)) {
        if (!macro) {
            define = line ~ /^# *define /
            sub(/^# *define +/, "", line)
            name = line
            sub(/[^A-Za-z0-9_].*/, "", name)
            body = ""
        }
        body = body " " line
        macro = line ~ /\\$/
        if (!macro && define)
            finish(name " = " body ";")
        next
    }
    if (line ~ /^ *#/ || line ~ /^ *$/ || line ~ /^extern +{/)
        next
    text = text " " line
    opened = gsub(/{/, "{", line)
    closed = gsub(/}/, "}", line)
    depth += opened - closed
    if (depth < 0) {
        depth = 0
        text = ""
    }
    if (depth == 0 && line ~ /[;}] *$/) {
        finish(substr(text, 2))
        text = ""
    }
}

END {
    count = 0
    root[":main"] = 1
    for (node in root)
        stack[++count] = node
    while (count) {
        node = stack[count--]
        if (node in reached)
            continue
        reached[node] = 1
        words_count = split(refers[node], words, " ")
        for (i = 1; i <= words_count; i++) {
            next_node = words[i]
            if (!(next_node in known))
                sub(/^.*:/, ":", next_node)
            if ((next_node in known) && !(next_node in reached))
                stack[++count] = next_node
        }
    }
    for (node in where)
        if (!(node in reached))
            print substr(node, 2) " (" where[node] ")"
}
