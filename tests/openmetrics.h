/*
 * A strict reader of OpenMetrics text (specification 1.0, text format): fails the test at the first
 * line that a scraper could refuse.
 */
#ifndef ERGON_TESTS_OPENMETRICS_H
#define ERGON_TESTS_OPENMETRICS_H

#include "check.h"

#include "base/text.h"

#include <ctype.h>
#include <stdbool.h>

enum { OM_NAME = 128, OM_LINE = 1024, OM_FAMILIES = 64 };

struct om_reader {
    char family[OM_NAME], type[16], unit[32];
    bool help, samples_began;
    char seen_families[OM_FAMILIES][OM_NAME];
    size_t family_count;
    struct erg_text seen; /* "\nname{labels} " of every sample */
    const char *line;
    size_t sample_count;
};

#define om_check(reader, condition)                                                                \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("not OpenMetrics (%s):\n%s", #condition, (reader)->line);                     \
    } while (0)

static inline size_t om_name_length(const char *text)
{
    size_t length = 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_')
        length++;
    return isdigit((unsigned char)text[0]) ? 0 : length;
}

static inline bool om_ends(const char *text, const char *end)
{
    size_t length = strlen(text), part = strlen(end);
    return length >= part && strcmp(text + length - part, end) == 0;
}

/* A family ends where the next begins: it must have had its help and its unit in its name. */
static inline void om_end_family(struct om_reader *reader)
{
    if (!reader->family[0])
        return;
    om_check(reader, reader->help);
    if (reader->unit[0]) {
        char suffix[40];
        snprintf(suffix, sizeof suffix, "_%s", reader->unit);
        om_check(reader, om_ends(reader->family, suffix));
        om_check(reader, strcmp(reader->type, "info") && strcmp(reader->type, "stateset"));
    }
}

static inline void om_comment(struct om_reader *reader)
{
    char what[8], name[OM_NAME], rest[OM_LINE];
    om_check(reader, sscanf(reader->line, "# %7[A-Z] %127[^ ] %1023[^\n]", what, name, rest) == 3);
    om_check(reader, om_name_length(name) == strlen(name));
    if (strcmp(what, "TYPE") == 0) {
        om_end_family(reader);
        for (size_t i = 0; i < reader->family_count; i++)
            om_check(reader, strcmp(reader->seen_families[i], name) != 0);
        om_check(reader, reader->family_count < OM_FAMILIES);
        snprintf(reader->seen_families[reader->family_count++], OM_NAME, "%s", name);
        snprintf(reader->family, sizeof reader->family, "%s", name);
        om_check(reader, !strcmp(rest, "gauge") || !strcmp(rest, "counter") ||
                             !strcmp(rest, "info") || !strcmp(rest, "stateset"));
        snprintf(reader->type, sizeof reader->type, "%s", rest);
        reader->unit[0] = '\0';
        reader->help = reader->samples_began = false;
        return;
    }
    om_check(reader, !strcmp(name, reader->family) && !reader->samples_began);
    if (strcmp(what, "UNIT") == 0) {
        om_check(reader, !reader->unit[0]);
        snprintf(reader->unit, sizeof reader->unit, "%s", rest);
    } else {
        om_check(reader, !strcmp(what, "HELP") && !reader->help);
        reader->help = true;
    }
}

/* Labels in braces; returns what follows them. Tells whether one is named like the family. */
static inline const char *om_labels(struct om_reader *reader, const char *at, bool *state)
{
    bool first = true;
    for (at++; *at != '}'; first = false) {
        om_check(reader, first || *at == ',');
        at += !first;
        size_t length = om_name_length(at);
        om_check(reader, length > 0 && at[length] == '=' && at[length + 1] == '"');
        *state |= length == strlen(reader->family) && !strncmp(at, reader->family, length);
        for (at += length + 2; *at != '"'; at++) {
            om_check(reader, *at && *at != '\n');
            if (*at == '\\') {
                at++;
                om_check(reader, *at == '\\' || *at == '"' || *at == 'n');
            }
        }
        at++;
    }
    return at + 1;
}

static inline void om_sample(struct om_reader *reader)
{
    static const struct {
        const char *type, *suffix;
    } suffixes[] = {{"gauge", ""}, {"counter", "_total"}, {"info", "_info"}, {"stateset", ""}};
    const char *line = reader->line;
    char expected[2 * OM_NAME] = "";
    size_t length = om_name_length(line);
    for (size_t i = 0; i < 4; i++)
        if (strcmp(suffixes[i].type, reader->type) == 0)
            snprintf(expected, sizeof expected, "%s%s", reader->family, suffixes[i].suffix);
    om_check(reader, length == strlen(expected) && !strncmp(line, expected, length));
    bool state = false;
    const char *at = line + length;
    if (*at == '{')
        at = om_labels(reader, at, &state);
    om_check(reader, state == !strcmp(reader->type, "stateset"));
    om_check(reader, *at == ' ');
    double value;
    char number[64];
    snprintf(number, sizeof number, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
    om_check(reader, erg_parse_double(number, &value));
    om_check(reader, strcmp(reader->type, "counter") || value >= 0);
    om_check(reader, strcmp(reader->type, "info") || value == 1);
    om_check(reader, !state || value == 0 || value == 1);
    struct erg_text key = {0};
    erg_text_printf(&key, "\n%.*s ", (int)(at - line), line);
    om_check(reader, !reader->seen.data || !strstr(reader->seen.data, key.data));
    erg_text_add(&reader->seen, key.data);
    erg_text_release(&key);
    reader->samples_began = true;
    reader->sample_count++;
}

/* Fails the test unless `text` is a whole exposition; returns the number of its samples. */
static inline size_t openmetrics_check(const char *text)
{
    struct om_reader reader = {0};
    for (reader.line = text; strcmp(reader.line, "# EOF\n") != 0;) {
        const char *end = strchr(reader.line, '\n');
        om_check(&reader, end && end > reader.line);
        if (reader.line[0] == '#')
            om_comment(&reader);
        else
            om_sample(&reader);
        reader.line = end + 1;
    }
    om_end_family(&reader);
    erg_text_release(&reader.seen);
    return reader.sample_count;
}

#endif
