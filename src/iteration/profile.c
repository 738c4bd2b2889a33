/* Profiles of instructions, as Perseus and Zeus write them. */
#include "iteration/iteration.h"

#include "base/memory.h"
#include "base/text.h"
#include "io/csv.h"
#include "io/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, MOST_CHUNKS = 4096 };

struct profile_columns {
    size_t stage, instruction, frequency, time, energy;
    ptrdiff_t ranks[RANKS]; /* Zeus writes which GPU a row is of; -1 where a column is not there */
};

/* One row; `line` order is kept so that messages can name the earlier of two rows. */
struct profile_row {
    size_t row, stage, chunk, table;
    enum erg_direction direction;
    long frequency, rank[RANKS];
    double time_s, energy_j;
};

static int find_columns(const struct erg_csv *csv, struct profile_columns *columns,
                        struct erg_error *err)
{
    if (erg_csv_require(csv, "stage", &columns->stage, err) != 0 ||
        erg_csv_require(csv, "instruction", &columns->instruction, err) != 0 ||
        erg_csv_require(csv, "frequency", &columns->frequency, err) != 0 ||
        erg_csv_require(csv, "time", &columns->time, err) != 0 ||
        erg_csv_require(csv, "energy", &columns->energy, err) != 0)
        return -1;
    static const char *const ranks[RANKS] = {"rank", "dp_rank", "pp_rank", "tp_rank"};
    for (size_t i = 0; i < RANKS; i++)
        columns->ranks[i] = erg_csv_find(csv, ranks[i]);
    return 0;
}

/* "forward" or "backward", or one of these of a chunk, as "forward/1"; false: none of them. */
static bool read_instruction(const char *instruction, struct profile_row *row)
{
    long chunk = 0;
    for (int direction = ERG_FORWARD; direction <= ERG_BACKWARD; direction++) {
        const size_t length = strlen(erg_direction_names[direction]);
        if (strncmp(instruction, erg_direction_names[direction], length) != 0)
            continue;
        const char *rest = instruction + length;
        if (*rest && (*rest != '/' || !erg_parse_long(rest + 1, &chunk) || chunk < 0 ||
                      chunk >= MOST_CHUNKS))
            return false;
        row->direction = (enum erg_direction)direction;
        row->chunk = (size_t)chunk;
        return true;
    }
    return false;
}

static int read_row(const struct erg_csv *csv, const struct profile_columns *columns, size_t row,
                    struct profile_row *out, struct erg_error *err)
{
    long stage;
    const char *instruction = erg_csv_text(csv, row, columns->instruction);
    if (erg_csv_long(csv, row, columns->stage, &stage, err) != 0 ||
        erg_csv_long(csv, row, columns->frequency, &out->frequency, err) != 0 ||
        erg_csv_double(csv, row, columns->time, &out->time_s, err) != 0 ||
        erg_csv_double(csv, row, columns->energy, &out->energy_j, err) != 0)
        return -1;
    for (size_t i = 0; i < RANKS; i++)
        if (columns->ranks[i] >= 0 &&
            erg_csv_long(csv, row, (size_t)columns->ranks[i], &out->rank[i], err) != 0)
            return -1;
    /* Stages count from 0 without gaps, so there are at least as many rows as stages. */
    if (stage < 0 || (size_t)stage >= erg_csv_rows(csv))
        return erg_csv_fail(csv, row, err,
                            "column 'stage' is %ld, but stages are numbered from 0 without gaps.",
                            stage);
    if (!read_instruction(instruction, out))
        return erg_csv_fail(csv, row, err,
                            "column 'instruction' is \"%s\", but must be forward or backward, or "
                            "one of a chunk from 0, as forward/1.",
                            instruction);
    if (out->frequency < 1 || out->frequency > 1000000)
        return erg_csv_fail(csv, row, err,
                            "column 'frequency' is %ld, but must be a clock in MHz between 1 and "
                            "1000000.",
                            out->frequency);
    if (!(out->time_s > 0) || out->time_s > 1e6)
        return erg_csv_fail(csv, row, err,
                            "column 'time' is %g, but must be more than 0 s and at most 1e6 s.",
                            out->time_s);
    if (!(out->energy_j >= 0) || out->energy_j > 1e12)
        return erg_csv_fail(csv, row, err,
                            "column 'energy' is %g, but must lie between 0 J and 1e12 J.",
                            out->energy_j);
    out->row = row;
    out->stage = (size_t)stage;
    return 0;
}

/* ---- tables ---- */

/* Virtual stage x is chunk x / stages of stage x mod stages. */
struct profile_shape {
    size_t stages, chunks;
};

static struct profile_shape find_tables(struct profile_row *rows, size_t count)
{
    struct profile_shape shape = {0};
    for (size_t i = 0; i < count; i++) {
        shape.stages = rows[i].stage >= shape.stages ? rows[i].stage + 1 : shape.stages;
        shape.chunks = rows[i].chunk >= shape.chunks ? rows[i].chunk + 1 : shape.chunks;
    }
    for (size_t i = 0; i < count; i++)
        rows[i].table =
            2 * (rows[i].chunk * shape.stages + rows[i].stage) + (size_t)rows[i].direction;
    return shape;
}

/* The name of a table in messages. */
struct table_name {
    size_t stage;
    char instruction[40];
};

static struct table_name name_of(const struct profile_shape *shape, size_t table)
{
    struct table_name name = {table / 2 % shape->stages, {0}};
    const char *direction = erg_direction_names[table % 2];
    if (shape->chunks > 1)
        snprintf(name.instruction, sizeof name.instruction, "%s/%zu", direction,
                 table / 2 / shape->stages);
    else
        snprintf(name.instruction, sizeof name.instruction, "%s", direction);
    return name;
}

static int by_table_and_clock(const void *left, const void *right)
{
    const struct profile_row *a = left, *b = right;
    if (a->table != b->table)
        return a->table < b->table ? -1 : 1;
    if (a->frequency != b->frequency)
        return a->frequency < b->frequency ? -1 : 1;
    for (size_t i = 0; i < RANKS; i++)
        if (a->rank[i] != b->rank[i])
            return a->rank[i] < b->rank[i] ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

static bool is_same_point(const struct profile_row *a, const struct profile_row *b)
{
    return a->table == b->table && a->frequency == b->frequency;
}

/*
 * Sorted rows: those of one point on several GPUs become one, which takes as long as the slowest
 * and as much energy as they do on average. All points of an instruction are of the same GPUs.
 */
static int merge_ranks(const struct erg_csv *csv, const struct profile_shape *shape,
                       struct profile_row *rows, size_t *count, struct erg_error *err)
{
    size_t merged = 0, first_ranks = 0;
    for (size_t i = 0, next; i < *count; i = next) {
        struct profile_row point = rows[i];
        const struct table_name name = name_of(shape, point.table);
        for (next = i + 1; next < *count && is_same_point(&rows[next], &rows[i]); next++) {
            if (memcmp(rows[next].rank, rows[next - 1].rank, sizeof rows->rank) == 0)
                return erg_csv_fail(csv, rows[next].row, err,
                                    "stage %zu %s at %ld MHz is measured twice, here and in line "
                                    "%zu.",
                                    name.stage, name.instruction, rows[next].frequency,
                                    erg_csv_line(csv, rows[next - 1].row));
            point.time_s = rows[next].time_s > point.time_s ? rows[next].time_s : point.time_s;
            point.energy_j += rows[next].energy_j;
            point.row = rows[next].row < point.row ? rows[next].row : point.row;
        }
        if (merged == 0 || rows[merged - 1].table != point.table)
            first_ranks = next - i;
        if (next - i != first_ranks)
            return erg_csv_fail(csv, rows[next - 1].row, err,
                                "stage %zu %s has rows of %zu rank%s at %ld MHz, but of %zu at %ld "
                                "MHz; every clock needs all of them.",
                                name.stage, name.instruction, next - i, erg_plural(next - i),
                                point.frequency, first_ranks, rows[merged - 1].frequency);
        point.energy_j /= (double)(next - i);
        rows[merged++] = point;
    }
    *count = merged;
    return 0;
}

static int fail_missing(const struct erg_csv *csv, const char *name,
                        const struct profile_shape *shape, const struct profile_row *has,
                        size_t table, struct erg_error *err)
{
    const struct table_name here = name_of(shape, has->table), lacks = name_of(shape, table);
    return erg_fail(err, ERG_FAILED,
                    "%s:%zu: the clock %ld MHz is measured for stage %zu %s in this row, but not "
                    "for stage %zu %s; every stage and instruction needs a row for every clock.",
                    name, erg_csv_line(csv, has->row), has->frequency, here.stage, here.instruction,
                    lacks.stage, lacks.instruction);
}

/* Sorted points: both directions of every stage, the same clocks everywhere. */
static int check_rows(const struct erg_csv *csv, const char *name,
                      const struct profile_shape *shape, const struct profile_row *rows,
                      size_t count, struct erg_error *err)
{
    const size_t tables = 2 * shape->stages * shape->chunks;
    size_t next = 0, clocks = 0;
    for (size_t table = 0; table < tables; table++) {
        size_t first = next;
        while (next < count && rows[next].table == table)
            next++;
        const struct table_name lacks = name_of(shape, table);
        if (next == first)
            return erg_fail(err, ERG_FAILED,
                            "%s: stage %zu has no rows with instruction \"%s\"; every stage from 0 "
                            "to %zu needs forward and backward%s.",
                            name, lacks.stage, lacks.instruction, shape->stages - 1,
                            shape->chunks > 1 ? " of every chunk" : "");
        if (table == 0)
            clocks = next;
        /* Merge with the clocks of the first table: the first difference is a gap in one of
         * them. */
        for (size_t a = 0, b = first; a < clocks || b < next; a++, b++) {
            bool first_lacks = a >= clocks || (b < next && rows[b].frequency < rows[a].frequency);
            bool this_lacks = b >= next || (a < clocks && rows[a].frequency < rows[b].frequency);
            if (first_lacks)
                return fail_missing(csv, name, shape, &rows[b], 0, err);
            if (this_lacks)
                return fail_missing(csv, name, shape, &rows[a], table, err);
        }
    }
    return 0;
}

static int by_row(const void *left, const void *right)
{
    const struct profile_row *a = left, *b = right;
    return (a->row > b->row) - (a->row < b->row);
}

static int read_rows(struct erg_profile *profile, const struct erg_csv *csv, const char *name,
                     struct profile_row *rows, struct erg_error *err)
{
    struct profile_columns columns;
    size_t count = erg_csv_rows(csv);
    if (find_columns(csv, &columns, err) != 0)
        return -1;
    if (!count)
        return erg_fail(err, ERG_FAILED,
                        "%s: the profile has a header but no rows; it needs one per stage, "
                        "instruction and clock.",
                        name);
    for (size_t row = 0; row < count; row++)
        if (read_row(csv, &columns, row, &rows[row], err) != 0)
            return -1;
    const struct profile_shape shape = find_tables(rows, count);
    qsort(rows, count, sizeof *rows, by_table_and_clock);
    if (merge_ranks(csv, &shape, rows, &count, err) != 0)
        return -1;
    if (check_rows(csv, name, &shape, rows, count, err) != 0)
        return -1;
    qsort(rows, count, sizeof *rows, by_row);
    profile->chunks = shape.chunks;
    profile->virtual_stages = shape.stages * shape.chunks;
    profile->tables = erg_xcalloc(2 * profile->virtual_stages, sizeof *profile->tables);
    for (size_t i = 0; i < count; i++)
        erg_frontier_add(&profile->tables[rows[i].table], rows[i].time_s, rows[i].energy_j,
                         rows[i].frequency);
    return 0;
}

int erg_profile_parse(struct erg_profile *profile, const char *name, const char *text,
                      size_t length, struct erg_error *err)
{
    struct erg_csv *csv;
    *profile = (struct erg_profile){0};
    if (erg_csv_parse(&csv, name, text, length, err) != 0)
        return -1;
    struct profile_row *rows = erg_xcalloc(erg_csv_rows(csv) + 1, sizeof *rows);
    int result = read_rows(profile, csv, name, rows, err);
    free(rows);
    erg_csv_free(csv);
    return result;
}

int erg_profile_load(struct erg_profile *profile, const char *path, struct erg_error *err)
{
    char *text;
    size_t length;
    *profile = (struct erg_profile){0};
    if (erg_file_read(path, 0, &text, &length, err) != 0)
        return -1;
    int result = erg_profile_parse(profile, path, text, length, err);
    free(text);
    return result;
}

void erg_profile_release(struct erg_profile *profile)
{
    for (size_t t = 0; t < 2 * profile->virtual_stages; t++)
        erg_frontier_release(&profile->tables[t]);
    free(profile->tables);
    *profile = (struct erg_profile){0};
}

void erg_profile_highest_clock(const struct erg_schedule *schedule,
                               const struct erg_frontier *tables, uint32_t *option)
{
    for (size_t i = 0; i < schedule->count; i++) {
        const struct erg_frontier *table =
            &tables[erg_table_index(&schedule->pipeline, &schedule->instructions[i])];
        option[i] = 0;
        for (uint32_t o = 1; o < table->count; o++)
            if (table->points[o].recipe > table->points[option[i]].recipe)
                option[i] = o;
    }
}
