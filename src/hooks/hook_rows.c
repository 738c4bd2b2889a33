/* The profile that hooks make, as a table. */
#include "hooks/hook_rows.h"

#include "base/memory.h"
#include "io/csv.h"
#include "io/subprocess.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The number of clocks in a row at which an instruction must need more energy than at the previous
 * one.
 */
enum { ENOUGH_RISES = 3 };

static size_t width(const struct erg_hook_rows *rows)
{
    return 2 * rows->shape.chunks * rows->shape.stages;
}

void erg_hook_rows_init(struct erg_hook_rows *rows, const struct erg_hook_shape *shape)
{
    *rows = (struct erg_hook_rows){.shape = *shape};
    rows->rises = erg_xcalloc(width(rows), sizeof *rows->rises);
}

void erg_hook_rows_release(struct erg_hook_rows *rows)
{
    free(rows->rows);
    free(rows->clocks_mhz);
    free(rows->rises);
    *rows = (struct erg_hook_rows){0};
}

void erg_hook_rows_begin(struct erg_hook_rows *rows, int clock_mhz)
{
    const size_t columns = width(rows);
    rows->rows = erg_xrealloc(rows->rows, (rows->count + 1) * columns, sizeof *rows->rows);
    rows->clocks_mhz = erg_xrealloc(rows->clocks_mhz, rows->count + 1, sizeof *rows->clocks_mhz);
    memset(rows->rows + rows->count * columns, 0, columns * sizeof *rows->rows);
    rows->clocks_mhz[rows->count] = clock_mhz;
}

void erg_hook_rows_add(struct erg_hook_rows *rows, size_t stage, size_t chunk,
                       enum erg_direction direction, double time_s, double energy_j,
                       double uncertainty)
{
    const size_t column = 2 * (stage * rows->shape.chunks + chunk) + (size_t)direction;
    struct erg_hook_row *row = &rows->rows[rows->count * width(rows) + column];
    if (!(time_s > 0) || !(energy_j > 0)) {
        row->lacks = true;
        return;
    }
    row->time_s += time_s;
    row->energy_j += energy_j;
    row->ranks++;
    rows->worst = fmax(rows->worst, uncertainty);
}

void erg_hook_rows_wait(struct erg_hook_rows *rows, double power_w)
{
    if (!(power_w > 0))
        return;
    rows->waiting_w += power_w;
    rows->waits++;
}

bool erg_hook_rows_end(struct erg_hook_rows *rows)
{
    const size_t columns = width(rows);
    struct erg_hook_row *row = rows->rows + rows->count * columns;
    for (size_t c = 0; c < columns; c++)
        if (row[c].lacks || !row[c].ranks) {
            rows->left_out++;
            return false;
        }
    for (size_t c = 0; c < columns; c++) {
        row[c].time_s /= (double)row[c].ranks;
        row[c].energy_j /= (double)row[c].ranks;
        if (rows->count > 0 && rows->rises[c] < ENOUGH_RISES) {
            const struct erg_hook_row *before = row + c - columns;
            rows->rises[c] = row[c].energy_j > before->energy_j ? rows->rises[c] + 1 : 0;
        }
    }
    rows->count++;
    return true;
}

bool erg_hook_rows_suffice(const struct erg_hook_rows *rows)
{
    for (size_t c = 0; c < width(rows); c++)
        if (rows->rises[c] < ENOUGH_RISES)
            return false;
    return true;
}

/* ---- the file ---- */

static void add_row(const struct erg_hook_rows *rows, size_t clock, size_t column,
                    struct erg_text *csv)
{
    const struct erg_hook_row *row = &rows->rows[clock * width(rows) + column];
    char instruction[40];
    if (rows->shape.chunks > 1)
        snprintf(instruction, sizeof instruction, "%s/%zu", erg_direction_names[column % 2],
                 column / 2 % rows->shape.chunks);
    else
        snprintf(instruction, sizeof instruction, "%s", erg_direction_names[column % 2]);
    erg_csv_add_long(csv, (long)(column / 2 / rows->shape.chunks));
    erg_csv_add(csv, instruction);
    erg_csv_add_long(csv, rows->clocks_mhz[clock]);
    erg_csv_add_double(csv, row->time_s);
    erg_csv_add_double(csv, row->energy_j);
    erg_csv_end_row(csv);
}

void erg_hook_rows_write(const struct erg_hook_rows *rows, struct erg_text *csv)
{
    erg_text_add(csv, "stage,instruction,frequency,time,energy\n");
    for (size_t column = 0; column < width(rows); column++)
        for (size_t clock = 0; clock < rows->count; clock++)
            add_row(rows, clock, column, csv);
}

/* Quotes a word for a shell. */
static void add_word(struct erg_text *text, const char *word)
{
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
    if (word[strspn(word, plain)] == '\0') {
        erg_text_add(text, word);
        return;
    }
    erg_subprocess_quote(text, word);
}

void erg_hook_rows_say(const struct erg_hook_rows *rows, const char *path, struct erg_text *text)
{
    const struct erg_hook_shape *shape = &rows->shape;
    erg_text_printf(text, "%s has %zu clock%s, %d to %d MHz, to +-%.1f %%", path, rows->count,
                    erg_plural(rows->count), rows->clocks_mhz[0], rows->clocks_mhz[rows->count - 1],
                    100 * rows->worst);
    if (rows->left_out)
        erg_text_printf(text, "; at %zu more the energy of passes could not be determined",
                        rows->left_out);
    erg_text_add(text, "; a plan: ergon frontier ");
    add_word(text, path);
    erg_text_printf(text, " -m %zu", shape->microbatches);
    if (rows->waits)
        erg_text_printf(text, " -p %.1f", rows->waiting_w / (double)rows->waits);
    if (shape->chunks > 1)
        erg_text_printf(text, " --schedule interleaved --virtual-stages %zu", shape->chunks);
    erg_text_add(text, " --plan plan.json");
}
