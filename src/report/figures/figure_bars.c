/* Figures 10 and 15: seconds of kernels by category, of layouts with and without recomputation and
 * of every stage of one model. */
#include "report/figures/figures_internal.h"

#include "io/csv.h"
#include "trace/kernel_record.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEFT = 42,
    TOP = 34,
    HEIGHT = 170,
    FOOT = 106,
    BAR = 15,
    GROUP_GAP = 8,
    RIGHT = 8,
    MOST_CATEGORIES = 16,
};

/* The seconds of a bar by category. */
struct bar {
    const struct erg_collected *mark;
    long stage; /* -1: the mean of all */
    struct {
        const char *name;
        double summed_s, exposed_s, wait_s, count, energy_j;
    } categories[MOST_CATEGORIES];
    size_t count;
    double total_s, exposed_communication_s, idle_s;
    bool known;
};

struct bars {
    struct figure *figure;
    struct figure_marks marks;
    /* Fully sharded layouts have an axis of their own: their seconds are of another order. */
    struct svg_scale scale, sharded_scale;
    char names[MOST_CATEGORIES][32]; /* in the order of the colours */
    size_t name_count;
};

static void add_category(struct bar *bar, const struct erg_result_category *category, double share)
{
    size_t i = 0;
    while (i < bar->count && strcmp(bar->categories[i].name, category->name) != 0)
        i++;
    if (i == MOST_CATEGORIES)
        return;
    if (i == bar->count) {
        memset(&bar->categories[i], 0, sizeof bar->categories[i]);
        bar->categories[bar->count++].name = category->name;
    }
    bar->categories[i].summed_s += share * category->summed_s;
    bar->categories[i].exposed_s += share * category->exposed_s;
    bar->categories[i].wait_s += isnan(category->wait_s) ? 0 : share * category->wait_s;
    bar->categories[i].count += share * category->count;
    bar->categories[i].energy_j += share * category->energy_j;
    bar->total_s += share * category->summed_s;
    if (erg_kernel_name_communicates(category->name))
        bar->exposed_communication_s += share * category->exposed_s;
}

/* The mean over the traced GPUs of a stage, or of all stages (-1). */
static struct bar bar_of(const struct erg_collected *mark, long stage)
{
    const struct erg_study_result *result = mark->result;
    struct bar bar = {.mark = mark, .stage = stage};
    size_t traced = 0;
    for (size_t i = 0; i < result->kernels_count; i++)
        traced += stage < 0 || result->kernels[i].stage == stage;
    bar.known = erg_figure_is_ok(mark) && traced > 0;
    for (size_t i = 0; bar.known && i < result->kernels_count; i++) {
        const struct erg_result_kernels *kernels = &result->kernels[i];
        if (stage >= 0 && kernels->stage != stage)
            continue;
        for (size_t c = 0; c < kernels->category_count; c++)
            add_category(&bar, &kernels->categories[c], 1 / (double)traced);
        bar.idle_s += kernels->idle_s / (double)traced;
    }
    return bar;
}

/* ---- drawing ---- */

static size_t colour_of(struct bars *at, const char *name)
{
    size_t i = 0;
    while (i < at->name_count && strcmp(at->names[i], name) != 0)
        i++;
    if (i == at->name_count && i < MOST_CATEGORIES)
        snprintf(at->names[at->name_count++], sizeof at->names[0], "%s", name);
    return i;
}

static void draw_bar(struct bars *at, struct erg_text *out, const struct svg_scale *scale,
                     const struct bar *bar, double x, double width)
{
    struct erg_text title = {0};
    double below = 0;
    if (!bar->known) {
        erg_svg_lack(out, x, TOP, width, HEIGHT, bar->mark, true);
        return;
    }
    for (size_t i = 0; i < bar->count; i++) {
        const double seconds = bar->categories[i].summed_s, wait = bar->categories[i].wait_s;
        const double y = erg_svg_at(scale, below + seconds);
        char style[32];
        snprintf(style, sizeof style, "bar c%zu", colour_of(at, bar->categories[i].name) % 8);
        title.count = 0;
        erg_figure_describe(&title, bar->mark);
        if (bar->stage >= 0)
            erg_text_printf(&title, ", stage %ld", bar->stage);
        erg_text_printf(&title, "\n%s: %.4g s, including %.4g s exposed", bar->categories[i].name,
                        seconds, bar->categories[i].exposed_s);
        if (wait > 0)
            erg_text_printf(&title, ", %.4g s waiting", wait);
        erg_svg_box(out, x, y, width, erg_svg_at(scale, below) - y, style, NULL, title.data);
        if (wait > 0) {
            double wait_y = erg_svg_at(scale, below + fmin(wait, seconds));
            erg_svg_box(out, x, wait_y, width, erg_svg_at(scale, below) - wait_y, "wait", NULL,
                        title.data);
        }
        below += seconds;
    }
    if (bar->exposed_communication_s > 0) {
        double y = erg_svg_at(scale, bar->exposed_communication_s);
        erg_svg_line(out, x - 2, y, x + width + 2, y, "exposed");
    }
    erg_text_release(&title);
}

/* How wide a part is for its bars and the two headings above them, of 12 and 10 px. */
static double frame_width(double inner, const char *head, const char *second)
{
    const double widest = fmax(7.2 * (double)strlen(head), 5.4 * (double)strlen(second));
    return LEFT + fmax(inner, widest) + RIGHT;
}

static void draw_frame(struct erg_text *out, struct svg_scale *scale, double width,
                       const char *head, const char *second)
{
    scale->from = TOP + HEIGHT;
    scale->to = TOP;
    erg_svg_label(out, LEFT, 12, SVG_START, "head", head);
    erg_svg_label(out, LEFT, 25, SVG_START, "group", second);
    erg_svg_axis(out, scale, LEFT, width - RIGHT, false);
    erg_svg_label_up(out, 9, TOP + HEIGHT / 2.0, SVG_MIDDLE, "axis", "kernel seconds");
}

static void write_row(const struct bars *at, const struct bar *bar)
{
    struct erg_text *csv = &at->figure->csv;
    for (size_t i = 0; i < bar->count || (i == 0 && !bar->known); i++) {
        erg_figure_csv_mark(at->figure, bar->mark);
        if (bar->stage >= 0)
            erg_csv_add_long(csv, bar->stage);
        else
            erg_csv_add(csv, "");
        if (bar->known) {
            erg_csv_add(csv, bar->categories[i].name);
            erg_csv_add_double(csv, bar->categories[i].summed_s);
            erg_csv_add_double(csv, bar->categories[i].exposed_s);
            erg_csv_add_double(csv, bar->categories[i].wait_s);
            erg_csv_add_double(csv, bar->categories[i].count);
            erg_csv_add_double(csv, bar->categories[i].energy_j);
        } else {
            erg_text_add(csv, ",,,,,,");
        }
        erg_csv_end_row(csv);
    }
}

static void draw_legend(struct bars *at)
{
    struct figure_part *part = erg_figure_part(at->figure, 230, 16 * (double)at->name_count + 60);
    struct erg_text *out = &part->body;
    double y = 6;
    for (size_t i = 0; i < at->name_count; i++, y += 16) {
        char style[32];
        snprintf(style, sizeof style, "bar c%zu", i % 8);
        erg_svg_box(out, 4, y, 12, 11, style, NULL, NULL);
        erg_svg_label(out, 22, y + 10, SVG_START, NULL, at->names[i]);
    }
    erg_svg_box(out, 4, y, 12, 11, "bar c1", NULL, NULL);
    erg_svg_box(out, 4, y, 12, 11, "wait", NULL, NULL);
    erg_svg_label(out, 22, y + 10, SVG_START, NULL, "waits for its last peer");
    erg_svg_line(out, 2, y + 24, 18, y + 24, "exposed");
    erg_svg_label(out, 22, y + 28, SVG_START, NULL, "communication under no compute");
}

static bool is_sharded(const struct erg_collected *mark)
{
    return mark->fsdp > 1;
}

/* Bars are added before scales are known. */
static void fit_scales(struct bars *at, const struct bar *bars, size_t count)
{
    double most[2] = {0, 0};
    for (size_t i = 0; i < count; i++) {
        double *own = &most[is_sharded(bars[i].mark)];
        *own = fmax(*own, bars[i].total_s);
    }
    erg_svg_scale_fit(&at->scale, 0, most[0], true);
    erg_svg_scale_fit(&at->sharded_scale, 0, most[1], true);
}

/* ---- figure 10 ---- */

static void draw_run(struct bars *at, const struct bar *bars, size_t first, size_t end)
{
    double inner = GROUP_GAP;
    for (size_t i = first; i < end; i = erg_figure_layout_end(&at->marks, i))
        inner += BAR * (double)(erg_figure_layout_end(&at->marks, i) - i) + GROUP_GAP;
    const bool sharded = is_sharded(bars[first].mark);
    const char *second = sharded ? "fully sharded" : "tensor, expert, pipeline";
    const double width = frame_width(inner, bars[first].mark->model, second);
    struct figure_part *part = erg_figure_part(
        at->figure, width, TOP + HEIGHT + FOOT + erg_figure_variant_width(&at->marks));
    struct erg_text *out = &part->body;
    struct svg_scale *scale = sharded ? &at->sharded_scale : &at->scale;
    double x = LEFT + GROUP_GAP;
    draw_frame(out, scale, width, bars[first].mark->model, second);
    for (size_t i = first; i < end;) {
        size_t next = erg_figure_layout_end(&at->marks, i);
        const double start = x;
        for (; i < next; i++, x += BAR) {
            draw_bar(at, out, scale, &bars[i], x, BAR - 3);
            erg_svg_label_up(out, x + BAR / 2.0 + 2, TOP + HEIGHT + 5, SVG_END, "tick",
                             bars[i].mark->optimisation);
            if (bars[i].mark->equal)
                erg_svg_label(out, x + BAR / 2.0 - 1, TOP - 2, SVG_MIDDLE, "equal", "=");
            write_row(at, &bars[i]);
        }
        /* From bottom to top, so that it fits however narrow the group is. */
        struct erg_text label = {0};
        const struct erg_collected *mark = bars[next - 1].mark;
        erg_text_printf(&label, "%s%s%s", mark->label, *mark->variant ? " " : "", mark->variant);
        erg_svg_label_up(out, (start + x) / 2 + 2, TOP + HEIGHT + 36, SVG_END, "group", label.data);
        erg_text_release(&label);
        x += GROUP_GAP;
    }
}

static void keep_pairs(struct figure_marks *marks, bool has_pairs)
{
    size_t kept = 0;
    for (size_t i = 0; i < marks->count; i++)
        if (!has_pairs || !strcmp(marks->items[i]->optimisation, "base") ||
            !strcmp(marks->items[i]->optimisation, "act"))
            marks->items[kept++] = marks->items[i];
    marks->count = kept;
}

static void draw_layouts(struct bars *at, const struct erg_collection *collection)
{
    erg_figure_choose(&at->marks, collection, FIGURE_OPTIMISATIONS, "base");
    keep_pairs(&at->marks, erg_figure_has_optimisation(collection, "base") ||
                               erg_figure_has_optimisation(collection, "act"));
    struct bar *bars = erg_xcalloc(at->marks.count + 1, sizeof *bars);
    for (size_t i = 0; i < at->marks.count; i++)
        bars[i] = bar_of(at->marks.items[i], -1);
    fit_scales(at, bars, at->marks.count);
    for (size_t i = 0, end; i < at->marks.count; i = end) {
        const size_t model_end = erg_figure_model_end(&at->marks, i);
        for (end = i; end < model_end && is_sharded(bars[end].mark) == is_sharded(bars[i].mark);)
            end++;
        draw_run(at, bars, i, end);
    }
    free(bars);
}

/* ---- figure 15 ---- */

static long stages_of(const struct erg_collected *mark)
{
    return mark->pipeline > 0 ? mark->pipeline : 1;
}

static void draw_stages(struct bars *at, const struct bar *bars)
{
    const struct erg_collected *mark = bars->mark;
    const long stages = stages_of(mark);
    const double bar = stages > 16 ? 7 : stages > 8 ? 10 : BAR;
    char text[64];
    snprintf(text, sizeof text, "microbatch %ld", mark->microbatch);
    const double width = frame_width(bar * (double)stages + 2 * GROUP_GAP, mark->label, text);
    struct figure_part *part = erg_figure_part(at->figure, width, TOP + HEIGHT + 30);
    struct erg_text *out = &part->body;
    struct svg_scale *scale = is_sharded(mark) ? &at->sharded_scale : &at->scale;
    draw_frame(out, scale, width, mark->label, text);
    for (long stage = 0; stage < stages; stage++) {
        double x = LEFT + GROUP_GAP + bar * (double)stage;
        if (bars[stage].known)
            draw_bar(at, out, scale, &bars[stage], x, bar - 2);
        if (stage % 4 == 0) {
            snprintf(text, sizeof text, "%ld", stage);
            erg_svg_label(out, x + bar / 2 - 1, TOP + HEIGHT + 12, SVG_MIDDLE, "tick", text);
        }
        write_row(at, &bars[stage]);
    }
    if (!bars->known)
        erg_svg_lack(out, LEFT + 2, TOP, width - LEFT - RIGHT - 2, HEIGHT, mark, true);
    erg_svg_label(out, (LEFT + width - RIGHT) / 2, TOP + HEIGHT + 25, SVG_MIDDLE, "axis",
                  "pipeline stage");
}

/* The layouts of the study's first model, with the smallest microbatch and with that of 4, or else
 * the largest. */
static void keep_two_rows(struct figure_marks *marks, const char *model)
{
    long least = 0, most = 0, second;
    size_t kept = 0;
    bool has_4 = false;
    for (size_t i = 0; i < marks->count; i++) {
        long own = marks->items[i]->microbatch;
        if (strcmp(marks->items[i]->model, model) != 0)
            continue;
        least = least == 0 || own < least ? own : least;
        most = own > most ? own : most;
        has_4 = has_4 || own == 4;
    }
    second = has_4 ? 4 : most;
    const struct erg_collected **two =
        erg_xcalloc(2 * marks->count + 1, sizeof(const struct erg_collected *));
    for (int row = 0; row < (second == least ? 1 : 2); row++)
        for (size_t i = 0; i < marks->count; i++)
            if (!strcmp(marks->items[i]->model, model) &&
                marks->items[i]->microbatch == (row ? second : least))
                two[kept++] = marks->items[i];
    free(marks->items);
    assert(kept <= 2 * marks->count);
    marks->items = two;
    marks->count = marks->capacity = kept;
}

static void draw_pipelines(struct bars *at, const struct erg_collection *collection)
{
    size_t total = 0, next = 0;
    erg_figure_choose(&at->marks, collection, FIGURE_MICROBATCHES, "act");
    if (at->marks.count == 0)
        return;
    keep_two_rows(&at->marks, at->marks.items[0]->model);
    for (size_t i = 0; i < at->marks.count; i++)
        total += (size_t)stages_of(at->marks.items[i]);
    struct bar *bars = erg_xcalloc(total + 1, sizeof *bars);
    for (size_t i = 0; i < at->marks.count; i++)
        for (long stage = 0; stage < stages_of(at->marks.items[i]); stage++)
            bars[next++] = bar_of(at->marks.items[i], stage);
    assert(next == total);
    fit_scales(at, bars, total);
    for (size_t i = 0, first = 0; i < at->marks.count; i++) {
        draw_stages(at, &bars[first]);
        at->figure->parts[at->figure->count - 1].begins_row =
            i > 0 && at->marks.items[i]->microbatch != at->marks.items[i - 1]->microbatch;
        first += (size_t)stages_of(at->marks.items[i]);
    }
    free(bars);
}

bool erg_figure_bars(struct figure *figure, const struct erg_collection *collection)
{
    struct bars at = {.figure = figure};
    for (size_t i = 0; erg_kernel_category_names[i]; i++) /* the order of colours */
        (void)colour_of(&at, erg_kernel_category_names[i]);
    bool any = false;
    for (size_t i = 0; i < collection->count; i++)
        any = any || collection->marks[i].result->kernels_count > 0;
    if (!any)
        return false;
    figure->title = figure->number == 10 ? "Seconds of kernels by category"
                                         : "Seconds of kernels of every stage";
    figure->caption =
        "Summed over streams, so what runs at the same time counts twice; mean of the traced GPUs. "
        "A receive waits in its kernel for the sender: those parts are hatched. The legend lists "
        "the "
        "parts of a bar from its foot to its top.";
    erg_figure_csv_head(figure, "stage,category,summed_s,exposed_s,wait_s,count,energy_j");
    if (figure->number == 10)
        draw_layouts(&at, collection);
    else
        draw_pipelines(&at, collection);
    draw_legend(&at);
    free(at.marks.items);
    return true;
}
