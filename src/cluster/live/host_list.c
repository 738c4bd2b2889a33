/* Parses Slurm's lists of nodes. */
#include "cluster/live/host_list.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "0123456789";

static int fail(struct erg_error *err, const char *text, const char *why)
{
    return erg_fail(err, ERG_FAILED, "\"%.80s\" is not a list of nodes such as h[001-004],x3: %s",
                    text, why);
}

struct host_range {
    long from, to;
    int width; /* of numbers with leading zeros */
};

/* Parses "001-004", up to a comma or the bracket. */
static const char *read_range(struct host_range *range, const char *at)
{
    size_t width = strspn(at, digits);
    if (width == 0 || width > 9)
        return NULL;
    *range = (struct host_range){strtol(at, NULL, 10), strtol(at, NULL, 10), (int)width};
    at += width;
    if (*at == '-') {
        width = strspn(++at, digits);
        if (width == 0 || width > 9)
            return NULL;
        range->to = strtol(at, NULL, 10);
        at += width;
    }
    return (*at == ',' || *at == ']') && range->to >= range->from ? at : NULL;
}

/* Appends the names that begin with `head`, from the rest of one entry. */
static int add_entry(struct erg_host_list *hosts, const char *head, const char *rest,
                     const char *whole, struct erg_error *err)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    char name[ERG_HOST_NAME_MOST + 1];
    size_t plain = strspn(rest, letters);
    int length = snprintf(name, sizeof name, "%s%.*s", head, (int)plain, rest);
    if (length < 0 || (size_t)length >= sizeof name)
        return fail(err, whole, "a name has more than 64 characters");
    rest += plain;
    if (!*rest || *rest == ',') {
        if (length == 0)
            return fail(err, whole, "a name is missing");
        if (hosts->count == ERG_HOST_LIST_MOST)
            return fail(err, whole, "the list has more than 100000 nodes");
        ERG_PUSH(hosts, items, erg_xstrdup(name));
        return 0;
    }
    const char *end = strchr(rest, ']');
    if (*rest != '[' || !end)
        return fail(
            err, whole,
            *rest == '['
                ? "a bracket is not closed"
                : "a name contains characters other than letters, digits, '-', '_' and '.'");
    for (const char *at = rest; at != end;) {
        struct host_range range;
        at = read_range(&range, at + 1);
        if (!at)
            return fail(err, whole, "expected numbers and ranges such as 1-4 in brackets");
        for (long i = range.from; i <= range.to; i++) {
            char longer[sizeof name + 16];
            snprintf(longer, sizeof longer, "%s%0*ld", name, range.width, i);
            if (strlen(longer) > ERG_HOST_NAME_MOST)
                return fail(err, whole, "a name has more than 64 characters");
            if (add_entry(hosts, longer, end + 1, whole, err) != 0)
                return -1;
        }
    }
    return 0;
}

int erg_host_list_add(struct erg_host_list *hosts, const char *text, struct erg_error *err)
{
    for (const char *at = text;;) {
        if (add_entry(hosts, "", at, text, err) != 0)
            return -1;
        for (int inside = 0; *at && (inside || *at != ','); at++)
            inside = *at == '[' || (inside && *at != ']');
        if (!*at)
            return 0;
        at++;
    }
}

void erg_host_list_release(struct erg_host_list *hosts)
{
    for (size_t i = 0; i < hosts->count; i++)
        free(hosts->items[i]);
    free(hosts->items);
    *hosts = (struct erg_host_list){0};
}
