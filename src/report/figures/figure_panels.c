/* Figures 4, 8 and 13: temperature, power and clock of points next to each other, and the
 * efficiency of each. */
#include "report/figures/figures_internal.h"

#include "io/csv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const erg_figure_right_names[] = {"eff_edp", "tokens_per_j", "j_per_token", NULL};

enum { TEMPERATURE, POWER, CLOCK, PANELS };
enum {
    LEFT = 42,
    RIGHT = 38,
    TOP = 20,
    GROUP_LINE = 11, /* of a layout's name, which has a line per degree */
    PANEL = 96,
    GAP = 16,
    COLUMN = 13,
    NARROWEST = 34, /* of a layout: its name must fit */
    GROUP_GAP = 7,
    FOOT = 46,
};

static const char *const panel_names[PANELS] = {"GPU temperature, °C", "GPU power, W",
                                                "clock, GHz"};

struct panels {
    struct figure *figure;
    struct figure_marks marks;
    enum erg_figure_right right;
    bool relative; /* to the best of the model */
    struct svg_scale left_scales[PANELS], right_scales[PANELS];
};

/* The value of a mark in a panel; NaN: none. */
struct panel_values {
    double mean, peak, least_mean, most_mean, least_peak, most_peak;
};

static void spread(double value, double *least, double *most)
{
    *least = fmin(isnan(*least) ? value : *least, value);
    *most = fmax(isnan(*most) ? value : *most, value);
}

static struct panel_values show(const struct erg_collected *mark, int panel)
{
    const struct erg_study_result *result = mark->result;
    const struct erg_result_metrics *metrics = &result->metrics;
    struct panel_values shown = {NAN, NAN, NAN, NAN, NAN, NAN};
    if (!erg_figure_is_ok(mark))
        return shown;
    if (panel == CLOCK) {
        shown.mean = metrics->clock_mhz / 1000;
        return shown;
    }
    const struct erg_result_series *series =
        panel == POWER ? &metrics->power_w : &metrics->temperature_c;
    shown.mean = series->mean;
    shown.peak = isnan(series->sensor_peak) ? series->peak : series->sensor_peak;
    for (size_t i = 0; i < result->repeat_count; i++) {
        const struct erg_result_repeat *repeat = &result->repeats[i];
        spread(panel == POWER ? repeat->mean_power_w : repeat->mean_temperature_c,
               &shown.least_mean, &shown.most_mean);
        spread(panel == POWER ? repeat->sensor_peak_power_w : repeat->sensor_peak_temperature_c,
               &shown.least_peak, &shown.most_peak);
    }
    return shown;
}

static double efficiency(const struct erg_collected *mark, enum erg_figure_right right)
{
    const struct erg_result_metrics *metrics = &mark->result->metrics;
    if (!erg_figure_is_ok(mark))
        return NAN;
    return right == ERG_RIGHT_EFF_EDP        ? metrics->eff_edp
           : right == ERG_RIGHT_TOKENS_PER_J ? metrics->tokens_per_j
                                             : metrics->j_per_token;
}

/* The value of the mark, or its ratio to the highest one of its model. */
static double right_value(const struct panels *at, size_t index)
{
    const struct erg_collected *mark = at->marks.items[index];
    double own = efficiency(mark, at->right), best = 0;
    if (!at->relative)
        return own;
    for (size_t i = 0; i < at->marks.count; i++)
        if (!strcmp(at->marks.items[i]->model, mark->model))
            best = fmax(best, efficiency(at->marks.items[i], at->right)); /* NaN does not count */
    return own / best;
}

static void fit_scales(struct panels *at)
{
    for (int panel = 0; panel < PANELS; panel++) {
        double least = INFINITY, most = -INFINITY;
        for (size_t i = 0; i < at->marks.count; i++) {
            struct panel_values shown = show(at->marks.items[i], panel);
            const double values[] = {shown.mean, shown.peak, shown.least_mean, shown.most_peak};
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                least = fmin(least, values[v]);
                most = fmax(most, values[v]);
            }
        }
        erg_svg_scale_fit(&at->left_scales[panel], least, most, false);
    }
    double most = 0;
    for (size_t i = 0; i < at->marks.count; i++)
        most = fmax(most, right_value(at, i));
    for (int panel = 0; panel < PANELS; panel++)
        erg_svg_scale_fit(&at->right_scales[panel], 0, most, true);
}

/* ---- drawing ---- */

static const char *right_label(const struct panels *at)
{
    static const char *const names[][2] = {
        [ERG_RIGHT_EFF_EDP] = {"samples / (s MJ)", "samples / (s MJ), of the model's best"},
        [ERG_RIGHT_TOKENS_PER_J] = {"tokens / J", "tokens / J, of the model's best"},
        [ERG_RIGHT_J_PER_TOKEN] = {"J / token", "J / token, of the model's most"},
    };
    return names[at->right][at->relative];
}

static void draw_whisker(struct erg_text *out, double x, const struct svg_scale *scale,
                         double least, double most)
{
    if (!isnan(least) && most > least)
        erg_svg_line(out, x, erg_svg_at(scale, least), x, erg_svg_at(scale, most), "whisker");
}

static void describe_value(struct erg_text *title, const struct panels *at, size_t index, int panel,
                           const char *what, double value)
{
    title->count = 0;
    erg_figure_describe(title, at->marks.items[index]);
    erg_text_printf(title, "\n%s: %s %.4g", panel_names[panel], what, value);
}

static void draw_mark(const struct panels *at, struct erg_text *out, size_t index, int panel,
                      double x)
{
    const struct svg_scale *scale = &at->left_scales[panel];
    struct panel_values shown = show(at->marks.items[index], panel);
    struct erg_text title = {0};
    draw_whisker(out, x, scale, shown.least_mean, shown.most_mean);
    draw_whisker(out, x, scale, shown.least_peak, shown.most_peak);
    if (!isnan(shown.mean)) {
        describe_value(&title, at, index, panel, "mean", shown.mean);
        erg_text_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.4\" class=\"mean\">", x,
                        erg_svg_at(scale, shown.mean));
        erg_svg_title(out, title.data);
        erg_text_add(out, "</circle>\n");
    }
    if (!isnan(shown.peak)) {
        describe_value(&title, at, index, panel, "highest that the sensor shows", shown.peak);
        erg_svg_box(out, x - 3, erg_svg_at(scale, shown.peak) - 3, 6, 6, "peak", NULL, title.data);
    }
    double value = right_value(at, index);
    if (!isnan(value)) {
        double y = erg_svg_at(&at->right_scales[panel], value);
        title.count = 0;
        erg_figure_describe(&title, at->marks.items[index]);
        erg_text_printf(&title, "\n%s: %.4g", right_label(at), value);
        erg_text_printf(out, "<path d=\"M%.1f %.1fl6 6m0 -6l-6 6\" class=\"efficiency\">", x - 3,
                        y - 3);
        erg_svg_title(out, title.data);
        erg_text_add(out, "</path>\n");
    }
    erg_text_release(&title);
}

/* A layout's name above its marks, a degree on each line. */
static void draw_group_name(struct erg_text *out, double x, double bottom, const char *label)
{
    char line[32];
    int lines = 1;
    for (const char *at = label; *at; at++)
        lines += *at == ' ';
    for (double y = bottom - GROUP_LINE * (lines - 1); *label; y += GROUP_LINE) {
        size_t length = strcspn(label, " ");
        snprintf(line, sizeof line, "%.*s", (int)length, label);
        erg_svg_label(out, x, y, SVG_MIDDLE, "group", line);
        label += length + (label[length] == ' ');
    }
}

static void column_name(struct erg_text *out, const struct panels *at,
                        const struct erg_collected *mark)
{
    if (at->figure->number == 13)
        erg_text_printf(out, "b=%ld", mark->microbatch);
    else
        erg_text_add(out, mark->optimisation);
}

static double group_width(size_t marks)
{
    return fmax(NARROWEST, COLUMN * (double)marks);
}

/* The marks of one layout, from x on; returns where the next begin. */
static double draw_group(const struct panels *at, struct erg_text *out, size_t first, size_t end,
                         double x, double top)
{
    const double width = group_width(end - first);
    const double start = x + (width - COLUMN * (double)(end - first)) / 2;
    const double bottom = top + PANELS * PANEL + (PANELS - 1) * GAP;
    draw_group_name(out, x + width / 2, top - 5, at->marks.items[first]->label);
    for (size_t i = first; i < end; i++) {
        const struct erg_collected *mark = at->marks.items[i];
        const double left = start + COLUMN * (double)(i - first), middle = left + COLUMN / 2.0;
        struct erg_text name = {0};
        for (int panel = 0; panel < PANELS; panel++) {
            double panel_top = top + panel * (PANEL + GAP);
            if (erg_figure_is_ok(mark))
                draw_mark(at, out, i, panel, middle);
            else
                erg_svg_lack(out, left + 0.5, panel_top, COLUMN - 1, PANEL, mark, true);
        }
        if (mark->equal)
            erg_svg_label(out, middle, top + 9, SVG_MIDDLE, "equal", "=");
        column_name(&name, at, mark);
        erg_svg_label_up(out, middle + 3.5, bottom + 6, SVG_END, "tick", name.data);
        erg_text_release(&name);
    }
    if (*at->marks.items[first]->variant)
        erg_svg_label_up(out, x + width / 2 + 3.5, bottom + FOOT - 4, SVG_END, "tick",
                         at->marks.items[first]->variant);
    return x + width + GROUP_GAP;
}

static void draw_axes(struct panels *at, struct erg_text *out, double width, double top)
{
    for (int panel = 0; panel < PANELS; panel++) {
        double panel_top = top + panel * (PANEL + GAP);
        struct svg_scale *scale = &at->left_scales[panel], *right = &at->right_scales[panel];
        scale->from = right->from = panel_top + PANEL;
        scale->to = right->to = panel_top;
        erg_svg_axis(out, scale, LEFT, width - RIGHT, false);
        erg_svg_axis(out, right, width - RIGHT, width - RIGHT, true);
        erg_svg_label_up(out, 9, panel_top + PANEL / 2.0, SVG_MIDDLE, "axis", panel_names[panel]);
    }
}

static double group_names_height(const struct panels *at)
{
    int most = 1;
    for (size_t i = 0; i < at->marks.count; i++) {
        int lines = 1;
        for (const char *label = at->marks.items[i]->label; *label; label++)
            lines += *label == ' ';
        most = lines > most ? lines : most;
    }
    return GROUP_LINE * most;
}

static void draw_model(struct panels *at, size_t first, size_t end)
{
    double inner = 0, top = TOP + group_names_height(at) + 4;
    for (size_t i = first; i < end; i = erg_figure_layout_end(&at->marks, i))
        inner += group_width(erg_figure_layout_end(&at->marks, i) - i) + GROUP_GAP;
    const double width = LEFT + inner + RIGHT;
    struct figure_part *part = erg_figure_part(at->figure, fmax(width, 190),
                                               top + PANELS * PANEL + (PANELS - 1) * GAP + FOOT +
                                                   erg_figure_variant_width(&at->marks));
    struct erg_text *out = &part->body;
    erg_svg_label(out, LEFT, 12, SVG_START, "head", at->marks.items[first]->model);
    draw_axes(at, out, width, top);
    erg_svg_label_up(out, width - 2, top + (PANELS * PANEL + (PANELS - 1) * GAP) / 2.0, SVG_MIDDLE,
                     "axis right", right_label(at));
    double x = LEFT + GROUP_GAP / 2.0;
    for (size_t i = first; i < end;) {
        size_t next = erg_figure_layout_end(&at->marks, i);
        x = draw_group(at, out, i, next, x, top);
        if (next < end)
            erg_svg_line(out, x - GROUP_GAP / 2.0, top, x - GROUP_GAP / 2.0,
                         top + PANELS * PANEL + (PANELS - 1) * GAP, "divide");
        i = next;
    }
}

static void draw_legend(struct panels *at)
{
    const bool short_names = at->figure->number == 4;
    struct figure_part *part = erg_figure_part(at->figure, 250, 96);
    struct erg_text *out = &part->body;
    erg_text_add(out, "<circle cx=\"8\" cy=\"12\" r=\"3.4\" class=\"mean\"/>\n");
    erg_svg_label(out, 18, 16, SVG_START, NULL, "mean over GPUs and time");
    erg_svg_box(out, 5, 25, 6, 6, "peak", NULL, NULL);
    erg_svg_label(out, 18, 32, SVG_START, NULL, "highest that a sensor shows");
    erg_text_add(out, "<path d=\"M5 41l6 6m0 -6l-6 6\" class=\"efficiency\"/>\n");
    erg_svg_label(out, 18, 48, SVG_START, NULL, right_label(at));
    erg_svg_label(out, 8, 65, SVG_MIDDLE, "equal", "=");
    erg_svg_label(out, 18, 64, SVG_START, NULL,
                  short_names ? "the same as another" : "the same as a mark before it");
    erg_svg_line(out, 8, 72, 8, 84, "whisker");
    erg_svg_label(out, 18, 82, SVG_START, NULL, "least to most of repeats");
}

static void write_table(const struct panels *at)
{
    struct figure *figure = at->figure;
    erg_figure_csv_head(figure, "time_s,temperature_mean_c,temperature_sensor_peak_c,"
                                "temperature_peak_c,power_mean_w,power_sensor_peak_w,power_peak_w,"
                                "clock_mhz,busy_clock_mhz,eff_edp,tokens_per_j,j_per_token,noise,"
                                "right_axis");
    for (size_t i = 0; i < at->marks.count; i++) {
        const struct erg_collected *mark = at->marks.items[i];
        const struct erg_result_metrics *m = &mark->result->metrics;
        const double values[] = {m->time_s,
                                 m->temperature_c.mean,
                                 m->temperature_c.sensor_peak,
                                 m->temperature_c.peak,
                                 m->power_w.mean,
                                 m->power_w.sensor_peak,
                                 m->power_w.peak,
                                 m->clock_mhz,
                                 m->busy_clock_mhz,
                                 m->eff_edp,
                                 m->tokens_per_j,
                                 m->j_per_token,
                                 m->noise,
                                 right_value(at, i)};
        erg_figure_csv_mark(figure, mark);
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            erg_csv_add_double(&figure->csv, values[v]);
        erg_csv_end_row(&figure->csv);
    }
}

static size_t count_microbatches(const struct erg_collection *collection)
{
    size_t others = 0;
    for (size_t i = 1; i < collection->count; i++)
        others += collection->marks[i].microbatch != collection->marks[0].microbatch;
    return others + 1;
}

static size_t count_optimisations(const struct erg_collection *collection)
{
    size_t others = 0;
    for (size_t i = 1; i < collection->count; i++)
        others += strcmp(collection->marks[i].optimisation, collection->marks[0].optimisation) != 0;
    return others + 1;
}

bool erg_figure_panels(struct figure *figure, const struct erg_collection *collection,
                       enum erg_figure_right right)
{
    struct panels at = {.figure = figure, .right = right, .relative = figure->number != 4};
    const unsigned axes = figure->number == 8    ? FIGURE_OPTIMISATIONS
                          : figure->number == 13 ? FIGURE_MICROBATCHES
                                                 : FIGURE_ONE_EACH;
    if ((figure->number == 8 && count_optimisations(collection) < 2) ||
        (figure->number == 13 && count_microbatches(collection) < 2))
        return false;
    figure->title = figure->number == 4   ? "Temperature, power and clock by layout"
                    : figure->number == 8 ? "Effects of overlap and recomputation"
                                          : "Effects of larger microbatches";
    figure->caption =
        figure->number == 4 ? "Each column is a layout, named by its degrees (TP tensor, PP "
                              "pipeline, EP expert, FSDP sharding); all share the axes. Crosses "
                              "count speed twice, in samples per second, per megajoule: higher "
                              "is better."
        : figure->number == 8
            ? "base: neither; cc: communication under compute; act: activations computed again."
            : "b: sequences of a microbatch. The batch is the same throughout.";
    erg_figure_choose(&at.marks, collection, axes, "act");
    fit_scales(&at);
    for (size_t i = 0; i < at.marks.count; i = erg_figure_model_end(&at.marks, i))
        draw_model(&at, i, erg_figure_model_end(&at.marks, i));
    draw_legend(&at);
    write_table(&at);
    free(at.marks.items);
    return figure->count > 1;
}
