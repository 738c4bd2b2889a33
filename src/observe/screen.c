/* The whole picture of the monitor, and its grid as text (observe/screen.h). */
#include "observe/screen.h"

#include "base/memory.h"
#include "base/table.h"
#include "observe/format.h"
#include "observe/imbalance.h"
#include "observe/screen_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- characters and texts on the grid ---- */

static uint32_t decode(const char **text)
{
    const unsigned char *byte = (const unsigned char *)*text;
    int more = byte[0] >= 0xF0 ? 3 : byte[0] >= 0xE0 ? 2 : byte[0] >= 0xC0 ? 1 : 0;
    uint32_t code = more ? byte[0] & (0x3Fu >> more) : byte[0];
    for (int i = 1; i <= more; i++) {
        if ((byte[i] & 0xC0) != 0x80) { /* not UTF-8 */
            *text += i;
            return '?';
        }
        code = code << 6 | (byte[i] & 0x3F);
    }
    *text += more + 1;
    return code < 0x20 || (code >= 0x80 && code < 0xA0) || (!more && code >= 0x80) ? '?' : code;
}

/* The nearest ASCII character for one of the picture. */
static uint32_t plain(uint32_t code)
{
    static const char eighths[] = "_.:-=+*";
    if (code < 0x80)
        return code;
    if (code >= 0x2581 && code <= 0x2588) /* lower eighths: sparklines; the full block: bars */
        return code == 0x2588 ? '#' : (uint32_t)eighths[code - 0x2581];
    if (code >= 0x2589 && code <= 0x258F) /* left eighths */
        return code <= 0x258C ? '#' : '-';
    if (code == 0x2591)
        return '-';
    return code == 0xB0 ? ' ' : '?';
}

void erg_canvas_put(const struct erg_canvas *canvas, int row, int column, uint32_t code,
                    enum erg_style style)
{
    struct erg_screen *screen = canvas->screen;
    if (row < 0 || row >= screen->rows || column < 0 || column >= screen->columns)
        return;
    screen->cells[row * screen->columns + column] =
        (struct erg_cell){canvas->ascii ? plain(code) : code, style};
}

int erg_canvas_text(const struct erg_canvas *canvas, int row, int column, const char *text,
                    int columns, enum erg_style style)
{
    int used = 0;
    for (; *text && used < columns; used++)
        erg_canvas_put(canvas, row, column + used, decode(&text), style);
    return used;
}

/* ---- the whole picture ---- */

enum { HEADER_ROWS = 1 };

static int lines_per_gpu(int rows, size_t count)
{
    int lines = count ? (rows - HEADER_ROWS) / (int)count : 0;
    return lines < 1 ? 1 : lines > 4 ? 4 : lines;
}

size_t erg_screen_page(int rows, size_t count)
{
    int page = (rows - HEADER_ROWS) / lines_per_gpu(rows, count);
    return page < 1 ? 1 : (size_t)page;
}

/* Over the GPUs with a known value. */
struct sum {
    double value;
    size_t count;
};

static void add(struct sum *sum, double value)
{
    sum->value += isnan(value) ? 0 : value;
    if (!isnan(value))
        sum->count++;
}

enum { SUM_BYTES = ERG_FORMAT_BYTES + 32 };

/* "5.20 kW"; "5.20 kW of 7" if only 7 GPUs have a value; "-". */
static void sum_text(char out[SUM_BYTES], const struct sum *sum, const char *unit, size_t gpus)
{
    char text[ERG_FORMAT_BYTES];
    erg_format_quantity(text, sum->count ? sum->value : NAN, unit);
    if (sum->count && sum->count < gpus)
        snprintf(out, SUM_BYTES, "%s of %zu", text, sum->count);
    else
        snprintf(out, SUM_BYTES, "%s", text);
}

static void draw_header(const struct erg_canvas *canvas, const struct erg_live_view *view,
                        const char *host)
{
    struct sum power = {0}, energy = {0};
    for (size_t g = 0; g < view->count; g++) {
        const struct erg_live_gpu *gpu = &view->gpus[g];
        add(&power, erg_live_power_w(gpu));
        add(&energy, isnan(gpu->energy_j) ? gpu->power_energy_j : gpu->energy_j);
    }
    char power_text[SUM_BYTES], energy_text[SUM_BYTES], time[ERG_FORMAT_BYTES];
    char sums[160], place[160];
    sum_text(power_text, &power, "W", view->count);
    sum_text(energy_text, &energy, "J", view->count);
    erg_format_duration(time, view->seconds);
    snprintf(sums, sizeof sums, "%zu GPU%s  %s  %s in %s", view->count, erg_plural(view->count),
             power_text, energy_text, time);
    snprintf(place, sizeof place, "ergon  %s  ", host);
    int columns = canvas->screen->columns, column = 0;
    int sums_width = (int)erg_text_width(sums), place_width = (int)erg_text_width(place);
    if (place_width + sums_width <= columns)
        column = erg_canvas_text(canvas, 0, 0, place, columns, ERG_STYLE_FAINT);
    column += erg_canvas_text(canvas, 0, column, sums, columns - column, ERG_STYLE_STRONG);
    static const char keys[] = "q quits";
    int keys_width = (int)strlen(keys);
    struct erg_text uneven = {0};
    double ratios[ERG_IMBALANCES];
    erg_imbalance_now(view, ratios);
    erg_text_add(&uneven, "  largest over mean: ");
    erg_imbalance_text(&uneven, ratios);
    const int uneven_width = (int)erg_text_width(uneven.data);
    if (view->count > 1 && column + uneven_width + 2 + keys_width <= columns)
        column += erg_canvas_text(canvas, 0, column, uneven.data, uneven_width, ERG_STYLE_PLAIN);
    erg_text_release(&uneven);
    if (column + 2 + keys_width <= columns)
        erg_canvas_text(canvas, 0, columns - keys_width, keys, keys_width, ERG_STYLE_FAINT);
}

void erg_screen_draw(struct erg_screen *screen, int rows, int columns,
                     const struct erg_live_view *view, const struct erg_screen_options *options)
{
    if (rows != screen->rows || columns != screen->columns) {
        screen->rows = rows;
        screen->columns = columns;
        screen->cells =
            erg_xrealloc(screen->cells, (size_t)rows * (size_t)columns + 1, sizeof *screen->cells);
    }
    for (int i = 0; i < rows * columns; i++)
        screen->cells[i] = (struct erg_cell){' ', ERG_STYLE_PLAIN};
    struct erg_canvas canvas = {screen, options->ascii};
    draw_header(&canvas, view, options->host);
    int lines = lines_per_gpu(rows, view->count), row = HEADER_ROWS;
    for (size_t g = options->first; g < view->count && row + lines <= rows; g++, row += lines)
        erg_canvas_gpu(&canvas, row, lines, &view->gpus[g]);
}

void erg_screen_release(struct erg_screen *screen)
{
    free(screen->cells);
    *screen = (struct erg_screen){0};
}

/* ---- as text ---- */

void erg_screen_cell_text(struct erg_text *out, const struct erg_cell *cell)
{
    static const unsigned char first[] = {0, 0xC0, 0xE0, 0xF0};
    uint32_t code = cell->code;
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    char bytes[4];
    for (int i = more; i > 0; i--, code >>= 6)
        bytes[i] = (char)(0x80 | (code & 0x3F));
    bytes[0] = (char)(first[more] | code);
    erg_text_add_bytes(out, bytes, (size_t)more + 1);
}
