/* Figures 5 and 17: every GPU of every layout as a cell: bytes that it receives, and its heat. */
#include "report/figures/figures_internal.h"

#include "io/csv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LABELS = 86, /* width of the layouts' names, without variants */
    TOTALS = 46, /* width of the text after a row */
    CELL = 7,
    ROW = 14,
    NODE_GAP = 3,
    HEAD = 34,
    MODEL = 17,
    SCALE = 40,
};

/* One picture: a quantity of every GPU. */
struct quantity {
    const char *name, *unit, *column;
    double (*of)(const struct erg_result_gpu *gpu);
    enum svg_map map;
    bool logarithmic, from_zero;
    bool summed; /* behind a row stands the sum over GPUs, else the mean */
    double factor;
};

static double nvlink_of(const struct erg_result_gpu *gpu)
{
    return gpu->received.nvlink;
}

static double pcie_of(const struct erg_result_gpu *gpu)
{
    return gpu->received.pcie;
}

static double mean_temperature_of(const struct erg_result_gpu *gpu)
{
    return gpu->temperature_c.mean;
}

static double peak_temperature_of(const struct erg_result_gpu *gpu)
{
    return gpu->temperature_c.peak;
}

static double busy_clock_of(const struct erg_result_gpu *gpu)
{
    return gpu->busy_clock_mhz;
}

static double thermal_share_of(const struct erg_result_gpu *gpu)
{
    return gpu->thermal_share;
}

static double cap_share_of(const struct erg_result_gpu *gpu)
{
    return gpu->cap_share;
}

static const struct quantity of_bytes[] = {
    {"received over NVLink in an iteration", "GB", "nvlink_received_gb", nvlink_of, SVG_GREEN, true,
     false, true, 1e-9},
    {"received over PCIe in an iteration", "GB", "pcie_received_gb", pcie_of, SVG_BLUE, true, false,
     true, 1e-9},
};

static const struct quantity of_heat[] = {
    {"temperature, mean", "°C", "temperature_mean_c", mean_temperature_of, SVG_HEAT, false, false,
     false, 1},
    {"temperature, highest", "°C", "temperature_peak_c", peak_temperature_of, SVG_HEAT, false,
     false, false, 1},
    {"clock while busy", "GHz", "busy_clock_ghz", busy_clock_of, SVG_BLUE, false, false, false,
     1e-3},
    {"share of busy time held by heat", "%", "thermal_share_percent", thermal_share_of, SVG_HEAT,
     false, true, false, 100},
    {"share of busy time held by the power cap", "%", "cap_share_percent", cap_share_of, SVG_VIOLET,
     false, true, false, 100},
};

struct maps {
    struct figure *figure;
    struct figure_marks marks;
    const struct quantity *quantities;
    size_t quantity_count;
    long gpus, node_gpus;
    bool has_slots;
    double labels; /* width of the layouts' names */
};

static const struct erg_result_gpu *gpu_of(const struct erg_collected *mark, long rank)
{
    const struct erg_study_result *result = mark->result;
    for (size_t i = 0; i < result->gpu_count; i++) {
        /* They are sorted by rank. */
        size_t at = (size_t)rank < result->gpu_count ? ((size_t)rank + i) % result->gpu_count : i;
        if (result->gpu[at].rank == rank)
            return &result->gpu[at];
    }
    return NULL;
}

static double value_of(const struct quantity *quantity, const struct erg_collected *mark, long rank)
{
    const struct erg_result_gpu *gpu = erg_figure_is_ok(mark) ? gpu_of(mark, rank) : NULL;
    return gpu ? quantity->of(gpu) * quantity->factor : NAN;
}

/* ---- colours ---- */

struct map_range {
    double least, most; /* of logarithms to the base 2, where the quantity has these */
};

static double scaled(const struct quantity *quantity, double value)
{
    return quantity->logarithmic ? log2(value) : value;
}

static struct map_range range_of(const struct maps *at, const struct quantity *quantity)
{
    struct map_range range = {INFINITY, -INFINITY};
    for (size_t i = 0; i < at->marks.count; i++)
        for (long rank = 0; rank < at->gpus; rank++) {
            double value = scaled(quantity, value_of(quantity, at->marks.items[i], rank));
            if (isfinite(value)) {
                range.least = fmin(range.least, value);
                range.most = fmax(range.most, value);
            }
        }
    if (quantity->from_zero)
        range.least = 0;
    return range;
}

static double share_of(const struct map_range *range, double value)
{
    if (!(range->most > range->least))
        return range->most > 0 ? 0.5 : 0;
    return (value - range->least) / (range->most - range->least);
}

/* ---- rows ---- */

static double cell_x(const struct maps *at, long rank)
{
    const long node = rank / at->node_gpus;
    return at->labels + CELL * (double)rank + NODE_GAP * (double)node;
}

static double cells_end(const struct maps *at)
{
    return cell_x(at, at->gpus - 1) + CELL;
}

static void draw_cell(const struct maps *at, struct erg_text *out, const struct quantity *quantity,
                      const struct map_range *range, long rank, double y, double value,
                      const char *title)
{
    char colour[8];
    double share = share_of(range, scaled(quantity, value));
    erg_svg_map_colour(colour, quantity->map, isfinite(share) ? share : 0);
    if (isnan(value))
        erg_svg_box(out, cell_x(at, rank), y, CELL - 0.5, ROW - 1.5, "cell unknown", NULL, title);
    else
        erg_svg_box(out, cell_x(at, rank), y, CELL - 0.5, ROW - 1.5, "cell", colour, title);
}

static void draw_row(const struct maps *at, struct erg_text *out, const struct quantity *quantity,
                     const struct map_range *range, const struct erg_collected *mark, double y)
{
    struct erg_text text = {0};
    double sum = 0;
    char number[32];
    erg_text_printf(&text, "%s%s%s", mark->label, *mark->variant ? " " : "", mark->variant);
    erg_svg_label(out, at->labels - 5, y + ROW - 4, SVG_END, "tick", text.data);
    if (!erg_figure_is_ok(mark)) {
        erg_svg_lack(out, at->labels, y, cells_end(at) - at->labels, ROW - 1.5, mark, false);
        erg_text_release(&text);
        return;
    }
    for (long rank = 0; rank < at->gpus; rank++) {
        const struct erg_result_gpu *gpu = gpu_of(mark, rank);
        double value = value_of(quantity, mark, rank);
        sum += value;
        text.count = 0;
        erg_figure_describe(&text, mark);
        if (gpu)
            erg_text_printf(&text, "\nGPU %ld: node %ld, local %ld%s%s, stage %ld", rank, gpu->node,
                            gpu->local, gpu->slot ? ", " : "", gpu->slot ? gpu->slot : "",
                            gpu->stage);
        if (isnan(value))
            erg_text_printf(&text, "\n%s: not known", quantity->name);
        else
            erg_text_printf(&text, "\n%s: %.4g %s", quantity->name, value, quantity->unit);
        draw_cell(at, out, quantity, range, rank, y, value, text.data);
    }
    if (!quantity->summed)
        sum /= (double)at->gpus;
    if (!isnan(sum))
        erg_svg_label(out, cells_end(at) + TOTALS - 2, y + ROW - 4, SVG_END, "tick",
                      erg_svg_number(number, sizeof number, sum));
    erg_text_release(&text);
}

/* The mean of every GPU over the layouts. */
static void draw_average(const struct maps *at, struct erg_text *out,
                         const struct quantity *quantity, const struct map_range *range, double y)
{
    erg_svg_label(out, at->labels - 5, y + ROW - 4, SVG_END, "tick", "average");
    for (long rank = 0; rank < at->gpus; rank++) {
        double sum = 0;
        long count = 0;
        char title[160];
        for (size_t i = 0; i < at->marks.count; i++) {
            double value = value_of(quantity, at->marks.items[i], rank);
            sum += isnan(value) ? 0 : value;
            count += !isnan(value);
        }
        snprintf(title, sizeof title, "GPU %ld, mean of %ld layouts\n%s: %.4g %s", rank, count,
                 quantity->name, count ? sum / (double)count : NAN, quantity->unit);
        draw_cell(at, out, quantity, range, rank, y, count ? sum / (double)count : NAN, title);
    }
}

/* ---- heads ---- */

static const char *slot_of(const struct maps *at, long rank)
{
    for (size_t i = 0; i < at->marks.count; i++) {
        const struct erg_result_gpu *gpu = gpu_of(at->marks.items[i], rank);
        if (gpu && gpu->slot)
            return gpu->slot;
    }
    return NULL;
}

static void draw_head(const struct maps *at, struct erg_text *out, const struct quantity *quantity)
{
    char text[96];
    snprintf(text, sizeof text, "%s, %s", quantity->name, quantity->unit);
    erg_svg_label(out, 2, 11, SVG_START, "head", text);
    for (long rank = 0; rank < at->gpus; rank += at->node_gpus) {
        snprintf(text, sizeof text, "Node %ld", rank / at->node_gpus + 1);
        erg_svg_label(out, cell_x(at, rank) + CELL * (double)at->node_gpus / 2, HEAD - 10,
                      SVG_MIDDLE, "tick", text);
    }
    erg_svg_label(out, cells_end(at) + TOTALS - 2, HEAD - 10, SVG_END, "tick",
                  quantity->summed ? "total" : "mean");
    for (long rank = 0; at->has_slots && rank < at->gpus; rank++) {
        const char *slot = slot_of(at, rank);
        if (slot)
            erg_svg_box(out, cell_x(at, rank), HEAD - 7, CELL - 0.5, 4,
                        strcmp(slot, "front") == 0 ? "slot front" : "slot rear", NULL, slot);
    }
}

static void draw_scale(const struct maps *at, struct erg_text *out, const struct quantity *quantity,
                       const struct map_range *range, double y)
{
    enum { STEPS = 24 };
    const double width = cells_end(at) - at->labels;
    char number[32], colour[8];
    if (!(range->most >= range->least))
        return;
    for (int i = 0; i < STEPS; i++) {
        erg_svg_map_colour(colour, quantity->map, (i + 0.5) / STEPS);
        erg_svg_box(out, at->labels + width * i / STEPS, y, width / STEPS + 0.3, 8, "scale", colour,
                    NULL);
    }
    for (int i = 0; i <= (range->most > range->least ? 4 : 0); i++) {
        double value = range->least + (range->most - range->least) * i / 4;
        erg_svg_label(
            out, at->labels + width * i / 4, y + 19,
            i == 4 ? SVG_END
            : i    ? SVG_MIDDLE
                   : SVG_START,
            "tick",
            erg_svg_number(number, sizeof number, quantity->logarithmic ? exp2(value) : value));
    }
}

static void draw_quantity(const struct maps *at, const struct quantity *quantity)
{
    const struct map_range range = range_of(at, quantity);
    size_t models = 0;
    for (size_t i = 0; i < at->marks.count; i = erg_figure_model_end(&at->marks, i))
        models++;
    const double height =
        HEAD + ROW + 4 + MODEL * (double)models + ROW * (double)at->marks.count + SCALE;
    struct figure_part *part = erg_figure_part(at->figure, cells_end(at) + TOTALS, height);
    struct erg_text *out = &part->body;
    double y = HEAD;
    draw_head(at, out, quantity);
    draw_average(at, out, quantity, &range, y);
    y += ROW + 4;
    for (size_t i = 0; i < at->marks.count; i++) {
        if (i == 0 || strcmp(at->marks.items[i]->model, at->marks.items[i - 1]->model) != 0) {
            erg_svg_label(out, at->labels, y + MODEL - 5, SVG_START, "group",
                          at->marks.items[i]->model);
            y += MODEL;
        }
        draw_row(at, out, quantity, &range, at->marks.items[i], y);
        y += ROW;
    }
    draw_scale(at, out, quantity, &range, y + 8);
}

static void write_table(const struct maps *at)
{
    struct erg_text columns = {0};
    erg_text_add(&columns, "gpu,node,local,slot,stage");
    for (size_t q = 0; q < at->quantity_count; q++)
        erg_text_printf(&columns, ",%s", at->quantities[q].column);
    erg_figure_csv_head(at->figure, columns.data);
    erg_text_release(&columns);
    for (size_t i = 0; i < at->marks.count; i++) {
        const struct erg_collected *mark = at->marks.items[i];
        for (size_t g = 0; g < mark->result->gpu_count; g++) {
            const struct erg_result_gpu *gpu = &mark->result->gpu[g];
            struct erg_text *csv = &at->figure->csv;
            erg_figure_csv_mark(at->figure, mark);
            erg_csv_add_long(csv, gpu->rank);
            erg_csv_add_long(csv, gpu->node);
            erg_csv_add_long(csv, gpu->local);
            erg_csv_add(csv, gpu->slot ? gpu->slot : "");
            erg_csv_add_long(csv, gpu->stage);
            for (size_t q = 0; q < at->quantity_count; q++)
                erg_csv_add_double(csv, at->quantities[q].of(gpu) * at->quantities[q].factor);
            erg_csv_end_row(csv);
        }
    }
}

bool erg_figure_maps(struct figure *figure, const struct erg_collection *collection)
{
    struct maps at = {.figure = figure, .node_gpus = 1};
    erg_figure_choose(&at.marks, collection, FIGURE_ONE_EACH, "base");
    at.quantities = figure->number == 5 ? of_bytes : of_heat;
    at.quantity_count =
        figure->number == 5 ? sizeof of_bytes / sizeof *of_bytes : sizeof of_heat / sizeof *of_heat;
    for (size_t i = 0; i < at.marks.count; i++) {
        const struct erg_study_result *result = at.marks.items[i]->result;
        if (result->gpus > at.gpus)
            at.gpus = result->gpus;
        if (result->node_gpus > at.node_gpus)
            at.node_gpus = result->node_gpus;
    }
    figure->title = figure->number == 5 ? "Bytes that every GPU receives"
                                        : "Heat of every GPU, and what holds its clock";
    figure->caption =
        figure->number == 5
            ? "Columns are GPUs in the order of ranks. PCIe has what goes to other "
              "nodes and copies to host memory. Colours are logarithmic."
            : "Columns are GPUs in the order of ranks; the strip above shows the slots that the "
              "air reaches first (light) and those behind them (dark).";
    if (at.gpus > 0) {
        at.labels = LABELS + erg_figure_variant_width(&at.marks);
        for (long rank = 0; rank < at.gpus; rank++)
            at.has_slots = at.has_slots || (figure->number == 17 && slot_of(&at, rank));
        for (size_t q = 0; q < at.quantity_count; q++)
            draw_quantity(&at, &at.quantities[q]);
        write_table(&at);
    }
    free(at.marks.items);
    return at.gpus > 0;
}
