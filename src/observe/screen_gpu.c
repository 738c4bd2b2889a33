/*
 * The lines of one GPU. A line is a list of pieces; while they do not fit, the least important one
 * is dropped.
 *
 *     0 NVIDIA H200                97 %  1980 MHz  61 °C  mem 58 °C  12.3 kJ
 *       ██████████████████▌░░░░░   623 / 700 W  power cap
 *       ▁▁▂▃▅▆▇▇▇▇▆▅
 */
#include "base/table.h"
#include "observe/format.h"
#include "observe/screen_internal.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    PIECES = 12,
    PIECE_BYTES = 128,
    GAP = 2,
    INDENT = 2,
    NAME_LEAST = 8,
    NAME_MOST = 20,
    ROOMY = 70,
    STRETCH_LEAST = 6
};

/* The content of a piece of variable width. */
enum stretch { RIGID, NAME, BAR, SPARKLINE };

struct line_piece {
    char text[PIECE_BYTES];
    int columns;    /* minimum */
    int importance; /* pieces of higher importance stay longer */
    enum erg_style style;
    enum stretch stretch;
};

struct screen_line {
    struct line_piece pieces[PIECES];
    int count;
};

static struct line_piece *add(struct screen_line *line, int importance, enum erg_style style)
{
    struct line_piece *piece = &line->pieces[line->count++];
    *piece = (struct line_piece){.importance = importance, .style = style};
    return piece;
}

/* Texts of unknown values keep their width, so that columns do not move. */
static void add_text(struct screen_line *line, int importance, enum erg_style style, int columns,
                     const char *text)
{
    struct line_piece *piece = add(line, importance, style);
    int width = (int)erg_text_width(text);
    snprintf(piece->text, PIECE_BYTES, "%*s%s", columns > width ? columns - width : 0, "", text);
    piece->columns = columns > width ? columns : width;
}

static void add_stretch(struct screen_line *line, int importance, enum stretch stretch, int least)
{
    struct line_piece *piece = add(line, importance, ERG_STYLE_PLAIN);
    piece->stretch = stretch;
    piece->columns = least;
}

/* ---- the texts of pieces ---- */

static void add_number(struct screen_line *line, int importance, enum erg_style style, int columns,
                       double value, const char *before, const char *after)
{
    char text[PIECE_BYTES];
    if (isnan(value))
        snprintf(text, sizeof text, "%s-%s", before, after);
    else
        snprintf(text, sizeof text, "%s%.0f%s", before, value, after);
    add_text(line, importance, style, columns, text);
}

static enum erg_style heat_style(const struct erg_live_gpu *gpu)
{
    double margin = erg_live_value(gpu, ERG_METRIC_MARGIN, 1);
    return margin <= 0 ? ERG_STYLE_BAD : margin <= 5 ? ERG_STYLE_WARNING : ERG_STYLE_PLAIN;
}

static void add_heat(struct screen_line *line, const struct erg_live_gpu *gpu)
{
    add_number(line, 8, heat_style(gpu), 6, erg_live_value(gpu, ERG_METRIC_TEMPERATURE, 1), "",
               " °C");
}

static void add_energy(struct screen_line *line, const struct erg_live_gpu *gpu)
{
    char text[ERG_FORMAT_BYTES];
    double energy_j = isnan(gpu->energy_j) ? gpu->power_energy_j : gpu->energy_j;
    add_text(line, 7, ERG_STYLE_PLAIN, 7, erg_format_quantity(text, energy_j, "J"));
}

static void add_traffic(struct screen_line *line, const struct erg_live_gpu *gpu, int importance,
                        const char *name, enum erg_metric tx, enum erg_metric rx)
{
    char rate[ERG_FORMAT_BYTES], text[PIECE_BYTES];
    double sum = gpu->rates[tx] + gpu->rates[rx];
    if (isnan(sum))
        return;
    snprintf(text, sizeof text, "%s %s", name, erg_format_quantity(rate, sum, "B/s"));
    add_text(line, importance, ERG_STYLE_FAINT, (int)strlen(name) + 10, text);
}

static void add_power(struct screen_line *line, const struct erg_live_gpu *gpu)
{
    char text[PIECE_BYTES];
    double power_w = erg_live_power_w(gpu);
    double limit_w = erg_live_value(gpu, ERG_METRIC_POWER_LIMIT, 1e-3);
    if (isnan(power_w))
        snprintf(text, sizeof text, "- W");
    else if (isnan(limit_w))
        snprintf(text, sizeof text, "%.0f W", power_w);
    else
        snprintf(text, sizeof text, "%.0f/%.0f W", power_w, limit_w);
    add_text(line, 9, ERG_STYLE_PLAIN, 11, text);
}

static void add_reasons(struct screen_line *line, const struct erg_live_gpu *gpu, int columns)
{
    struct erg_text words = {0};
    int64_t hot = ERG_REASON_SW_THERMAL | ERG_REASON_HW_THERMAL | ERG_REASON_HW_SLOWDOWN |
                  ERG_REASON_HW_POWER_BRAKE;
    enum erg_style style = gpu->reasons_recent & hot                       ? ERG_STYLE_BAD
                           : gpu->reasons_recent & ERG_REASON_SW_POWER_CAP ? ERG_STYLE_WARNING
                                                                           : ERG_STYLE_FAINT;
    erg_text_add(&words, "");
    if (erg_live_has(gpu, ERG_METRIC_XID) && gpu->values[ERG_METRIC_XID]) {
        erg_text_printf(&words, "XID %lld%s", (long long)gpu->values[ERG_METRIC_XID],
                        gpu->reasons_recent ? ", " : "");
        style = ERG_STYLE_BAD;
    }
    erg_format_reasons(&words, gpu->reasons_recent);
    struct line_piece *piece = add(line, 6, style);
    snprintf(piece->text, PIECE_BYTES, "%s", words.data);
    piece->columns = columns;
    erg_text_release(&words);
}

static void add_clock(struct screen_line *line, const struct erg_live_gpu *gpu)
{
    add_number(line, 5, ERG_STYLE_PLAIN, 8, erg_live_value(gpu, ERG_METRIC_SM_CLOCK, 1), "",
               " MHz");
}

static void add_utilisation(struct screen_line *line, const struct erg_live_gpu *gpu)
{
    add_number(line, 4, ERG_STYLE_PLAIN, 5, erg_live_value(gpu, ERG_METRIC_UTILISATION, 1), "",
               " %");
}

static void add_index(struct screen_line *line, const struct erg_live_gpu *gpu)
{
    char text[PIECE_BYTES];
    snprintf(text, sizeof text, "%d", gpu->info.index);
    add_text(line, 10, ERG_STYLE_STRONG, 1, text);
}

/* ---- drawing ---- */

static enum erg_style load_style(double share)
{
    return share >= 0.97 ? ERG_STYLE_BAD : share >= 0.85 ? ERG_STYLE_WARNING : ERG_STYLE_GOOD;
}

/* The power of a full bar: the power limit or, if unknown, the highest power in the history. */
static double full_power_w(const struct erg_live_gpu *gpu)
{
    double full_w = erg_live_value(gpu, ERG_METRIC_POWER_LIMIT, 1e-3);
    for (int i = 0; isnan(full_w) && i < ERG_LIVE_HISTORY; i++)
        full_w = fmax(full_w, gpu->history_w[i]);
    return full_w;
}

static void draw_bar(const struct erg_canvas *canvas, int row, int column, int columns,
                     const struct erg_live_gpu *gpu)
{
    double share = erg_live_power_w(gpu) / full_power_w(gpu);
    int eighths = share > 0 ? (int)lround(fmin(share, 1) * columns * 8) : 0;
    for (int i = 0; i < columns; i++) {
        int part = eighths - 8 * i;
        uint32_t code = part >= 8 ? 0x2588 : part > 0 ? 0x2590u - (uint32_t)part : 0x2591;
        erg_canvas_put(canvas, row, column + i, code,
                       part > 0 ? load_style(share) : ERG_STYLE_FAINT);
    }
}

static void draw_sparkline(const struct erg_canvas *canvas, int row, int column, int columns,
                           const struct erg_live_gpu *gpu)
{
    double full_w = full_power_w(gpu);
    for (int i = 0; i < columns; i++) {
        int step = ERG_LIVE_HISTORY - columns + i;
        double share = step < 0 ? NAN : gpu->history_w[step] / full_w;
        int eighth = (int)fmin(7, floor(fmax(share, 0) * 8)); /* fmax() of NaN: 0 */
        if (!isnan(share))
            erg_canvas_put(canvas, row, column + i, 0x2581u + (uint32_t)eighth, load_style(share));
    }
}

static int width(const struct screen_line *line, int indent)
{
    int columns = indent - GAP;
    for (int i = 0; i < line->count; i++)
        columns += GAP + line->pieces[i].columns;
    return columns;
}

static void drop_least(struct screen_line *line)
{
    int least = 0;
    for (int i = 1; i < line->count; i++)
        if (line->pieces[i].importance <= line->pieces[least].importance)
            least = i;
    line->count--;
    memmove(&line->pieces[least], &line->pieces[least + 1],
            (size_t)(line->count - least) * sizeof *line->pieces);
}

static void draw_line(const struct erg_canvas *canvas, int row, int indent,
                      struct screen_line *line, const struct erg_live_gpu *gpu)
{
    int columns = canvas->screen->columns, stretching = 0;
    while (line->count > 1 && width(line, indent) > columns)
        drop_least(line);
    for (int i = 0; i < line->count; i++)
        stretching += line->pieces[i].stretch != RIGID;
    int spare = columns - width(line, indent), column = indent;
    for (int i = 0; i < line->count; i++) {
        struct line_piece *piece = &line->pieces[i];
        int take = piece->columns;
        if (piece->stretch != RIGID && spare > 0) {
            assert(stretching > 0);
            take += spare / stretching;
            spare -= spare / stretching--;
        }
        if (piece->stretch == BAR)
            draw_bar(canvas, row, column, take, gpu);
        else if (piece->stretch == SPARKLINE)
            draw_sparkline(canvas, row, column, take, gpu);
        else
            erg_canvas_text(canvas, row, column,
                            piece->stretch == NAME ? gpu->info.name : piece->text, take,
                            piece->style);
        column += take + GAP;
    }
}

/*
 * With enough room the whole name has priority over traffic; on a narrow screen only its beginning.
 */
static int name_columns(const struct erg_canvas *canvas, const struct erg_live_gpu *gpu)
{
    int width_of_name = (int)erg_text_width(gpu->info.name);
    int most = canvas->screen->columns >= ROOMY ? NAME_MOST : NAME_LEAST;
    return width_of_name < most ? width_of_name : most;
}

static void draw_facts(const struct erg_canvas *canvas, int row, const struct erg_live_gpu *gpu)
{
    struct screen_line line = {0};
    add_index(&line, gpu);
    add_stretch(&line, 3, NAME, name_columns(canvas, gpu));
    add_traffic(&line, gpu, 1, "PCIe", ERG_METRIC_PCIE_TX, ERG_METRIC_PCIE_RX);
    add_traffic(&line, gpu, 2, "NVLink", ERG_METRIC_NVLINK_TX, ERG_METRIC_NVLINK_RX);
    add_utilisation(&line, gpu);
    add_clock(&line, gpu);
    if (erg_live_has(gpu, ERG_METRIC_MEMORY_CLOCK))
        add_number(&line, 1, ERG_STYLE_PLAIN, 12, erg_live_value(gpu, ERG_METRIC_MEMORY_CLOCK, 1),
                   "mem ", " MHz");
    add_heat(&line, gpu);
    if (erg_live_has(gpu, ERG_METRIC_MEMORY_TEMPERATURE))
        add_number(&line, 2, ERG_STYLE_PLAIN, 9,
                   erg_live_value(gpu, ERG_METRIC_MEMORY_TEMPERATURE, 1), "mem ", " °C");
    add_energy(&line, gpu);
    draw_line(canvas, row, 0, &line, gpu);
}

static void draw_load(const struct erg_canvas *canvas, int row, bool sparkline,
                      const struct erg_live_gpu *gpu)
{
    struct screen_line line = {0};
    add_stretch(&line, 7, BAR, STRETCH_LEAST);
    add_power(&line, gpu);
    if (sparkline)
        add_stretch(&line, 5, SPARKLINE, STRETCH_LEAST);
    add_reasons(&line, gpu, 18);
    draw_line(canvas, row, INDENT, &line, gpu);
}

static void draw_single(const struct erg_canvas *canvas, int row, const struct erg_live_gpu *gpu)
{
    struct screen_line line = {0};
    add_index(&line, gpu);
    add_stretch(&line, 3, BAR, STRETCH_LEAST);
    add_power(&line, gpu);
    add_heat(&line, gpu);
    add_utilisation(&line, gpu);
    add_clock(&line, gpu);
    add_energy(&line, gpu);
    add_reasons(&line, gpu, 10);
    draw_line(canvas, row, 0, &line, gpu);
}

static void draw_trouble(const struct erg_canvas *canvas, int row, const struct erg_live_gpu *gpu)
{
    struct screen_line line = {0};
    add_index(&line, gpu);
    add_text(&line, 9, ERG_STYLE_BAD, 1, erg_live_trouble(gpu));
    add_stretch(&line, 3, NAME, NAME_LEAST);
    draw_line(canvas, row, 0, &line, gpu);
}

void erg_canvas_gpu(const struct erg_canvas *canvas, int row, int lines,
                    const struct erg_live_gpu *gpu)
{
    if (!gpu->answers) {
        draw_trouble(canvas, row, gpu);
        return;
    }
    if (lines == 1) {
        draw_single(canvas, row, gpu);
        return;
    }
    draw_facts(canvas, row, gpu);
    draw_load(canvas, row + 1, lines == 2, gpu);
    if (lines >= 3) {
        struct screen_line line = {0};
        add_stretch(&line, 1, SPARKLINE, STRETCH_LEAST);
        draw_line(canvas, row + 2, INDENT, &line, gpu);
    }
}
