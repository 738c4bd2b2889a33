/* Figures: their SVG files, and the page of all. */
#include "report/figures/figures_internal.h"

#include "base/statistics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Colours that people with any colour vision tell apart (Okabe and Ito), darker on light ground. */
static const char colours[] =
    "--fig-card:#fff;--fig-ink:#16202c;--fig-quiet:#54616f;--fig-grid:#e3e8ed;--fig-band:#d5dae0;"
    "--fig-blue:#0b62a8;--fig-green:#0a7d55;--fig-wait:#ffffffb0;--fig-front:#9cc9ee;"
    "--fig-rear:#8f3a00;--c0:#0072b2;--c1:#e69f00;--c2:#009e73;--c3:#cc79a7;--c4:#d55e00;"
    "--c5:#8a94a0;--c6:#b5a400;--c7:#56b4e9;";
static const char dark_colours[] =
    "--fig-card:#181f27;--fig-ink:#e7edf3;--fig-quiet:#a3b0bd;--fig-grid:#2b3540;"
    "--fig-band:#3b4652;--fig-blue:#74b5ff;--fig-green:#3fcf95;--fig-wait:#181f27a0;"
    "--fig-front:#9cc9ee;--fig-rear:#d9722b;--c0:#3f9fe0;--c1:#e6a92b;--c2:#1fb98c;--c3:#dd93bd;"
    "--c4:#ec7a33;--c5:#97a2ae;--c6:#d3c64a;--c7:#7cc8f5;";
static const char print_colours[] = "--fig-card:#fff;--fig-ink:#000;--fig-quiet:#333;"
                                    "--fig-grid:#ddd;--fig-band:#d5dae0;--fig-blue:#0b62a8;"
                                    "--fig-green:#0a7d55;--fig-wait:#ffffffb0;";

/* The style of an SVG's elements. */
static const char marks_style[] =
    "text{font:11px system-ui,sans-serif;fill:var(--fig-ink)}"
    ".tick,.lack{font-size:9.5px;fill:var(--fig-quiet)}.lack{fill:var(--fig-ink)}"
    ".group{font-size:10px}.axis{font-size:10px;fill:var(--fig-quiet)}"
    ".head{font-size:12px;font-weight:600}.equal{font-weight:700}"
    ".right{fill:var(--fig-green)}"
    "path{fill:none;stroke:var(--fig-ink)}"
    ".grid{stroke:var(--fig-grid)}.divide{stroke:var(--fig-quiet);stroke-dasharray:3 3}"
    ".whisker{stroke:var(--fig-quiet);stroke-width:1.5}"
    ".mean{fill:var(--fig-blue)}.peak{fill:none;stroke:var(--fig-blue);stroke-width:1.5;"
    "pointer-events:all}"
    ".efficiency{stroke:var(--fig-green);stroke-width:2;pointer-events:all}"
    ".exposed{stroke:var(--fig-ink);stroke-width:2}"
    ".band{fill:var(--fig-band)}.unknown{fill:var(--fig-band)}"
    ".front{fill:var(--fig-front)}.rear{fill:var(--fig-rear)}"
    ".wait{fill:url(#hatch)}.hatch{stroke:var(--fig-wait);stroke-width:2.5}"
    /* Outlines: light fills and their neighbours are told apart. */
    ".c0,.c1,.c2,.c3,.c4,.c5,.c6,.c7,.front,.rear,.band{stroke:var(--fig-quiet);stroke-width:.7}"
    ".c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}"
    ".c4{fill:var(--c4)}.c5{fill:var(--c5)}.c6{fill:var(--c6)}.c7{fill:var(--c7)}";

static const char hatch[] =
    "<defs><pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" "
    "patternTransform=\"rotate(45)\"><path d=\"M0 0V5\" class=\"hatch\"/></pattern></defs>\n";

static void add_colours(struct erg_text *out, const char *where)
{
    erg_text_printf(
        out, "%s{%s}@media screen and (prefers-color-scheme:dark){%s{%s}}@media print{%s{%s}}",
        where, colours, where, dark_colours, where, print_colours);
}

/* ---- files ---- */

/* IDs of the points of a figure, which its table names. */
static void add_ids(struct erg_text *out, const struct figure *figure)
{
    const char *line = strchr(figure->csv.data, '\n'), *last = "";
    erg_text_printf(out, "<desc>%s Points:", figure->caption);
    while (line && line[1]) {
        const char *name_end = line + 1;
        bool quoted = *name_end == '"';
        if (quoted)
            name_end = strstr(name_end + 1, "\",") + 1;
        const char *id = strchr(name_end, ',') + 1;
        if (strncmp(id, last, 16) != 0)
            erg_text_printf(out, " %.16s", id);
        last = id;
        line = strchr(id, '\n');
    }
    erg_text_add(out, "</desc>\n");
}

enum { FILE_WIDTH = 1240, PART_GAP = 18, MARGIN = 14, FILE_HEAD = 44 };

struct corner {
    double x, y;
};

/* Where each part lies in the file; returns the lower right corner of all. */
static struct corner arrange(const struct figure *figure, struct corner *corners)
{
    struct corner next = {MARGIN, FILE_HEAD}, most = {0, 0};
    double row_height = 0;
    for (size_t i = 0; i < figure->count; i++) {
        const struct figure_part *part = &figure->parts[i];
        if (next.x > MARGIN && (part->begins_row || next.x + part->width > FILE_WIDTH - MARGIN)) {
            next = (struct corner){MARGIN, next.y + row_height + PART_GAP};
            row_height = 0;
        }
        corners[i] = next;
        next.x += part->width + PART_GAP;
        row_height = fmax(row_height, part->height);
        most.x = fmax(most.x, next.x);
        most.y = fmax(most.y, next.y + row_height);
    }
    return most;
}

void erg_figure_svg(struct erg_text *out, const struct figure *figure)
{
    struct corner *corners = erg_xcalloc(figure->count + 1, sizeof *corners);
    const struct corner end = arrange(figure, corners);
    const double width = fmax(end.x, 360), height = end.y + MARGIN;
    erg_text_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                    "width=\"%.0f\" height=\"%.0f\" role=\"img\">\n",
                    width, height, width, height);
    erg_text_printf(out, "<title>Figure %d: %s</title>\n", figure->number, figure->title);
    add_ids(out, figure);
    erg_text_add(out, "<style>");
    add_colours(out, "svg");
    erg_text_printf(out, "%s</style>\n%s", marks_style, hatch);
    erg_text_printf(out, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"var(--fig-card)\"/>\n", width,
                    height);
    erg_text_printf(
        out, "<text x=\"%d\" y=\"24\" style=\"font-size:15px;font-weight:600\">Figure %d: ", MARGIN,
        figure->number);
    erg_svg_escape(out, figure->title);
    erg_text_add(out, "</text>\n");
    for (size_t i = 0; i < figure->count; i++) {
        erg_text_printf(out, "<g transform=\"translate(%.1f %.1f)\">\n", corners[i].x,
                        corners[i].y);
        erg_text_add_bytes(out, figure->parts[i].body.data, figure->parts[i].body.count);
        erg_text_add(out, "</g>\n");
    }
    erg_text_add(out, "</svg>\n");
    free(corners);
}

/* ---- the page ---- */

static const char page_style[] =
    "*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--fig-ink);"
    "font:16px/1.5 system-ui,sans-serif}"
    "header,main{max-width:1320px;margin:0 auto;padding:0 20px}"
    "header{padding-top:26px}.brand{color:var(--fig-green);font-weight:600;margin:0}"
    "h1{margin:.1em 0 .35em;font-size:1.9rem;line-height:1.2;max-width:32em;overflow-wrap:anywhere}"
    ".brand span{font-weight:400;color:var(--fig-quiet);margin-left:.5em}"
    "header p{max-width:75ch;overflow-wrap:anywhere}.lead{color:var(--fig-quiet);margin:0 0 .8em}"
    ".next{border-left:4px solid var(--fig-green);padding:2px 0 2px 12px;margin:0 0 1em}"
    ":focus-visible{outline:3px solid var(--fig-blue);outline-offset:2px}"
    ".unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);"
    "white-space:nowrap}h2{margin:0 0 "
    ".3em;font-size:1.2rem}"
    "nav{display:flex;flex-wrap:wrap;gap:4px 16px;margin:.6em 0}a{color:var(--fig-blue)}"
    "section{background:var(--fig-card);border:1px solid var(--line);border-radius:12px;"
    "padding:20px 22px;margin:16px 0}"
    "section p{max-width:75ch;margin:.2em 0 .8em;color:var(--fig-quiet)}"
    ".parts{display:flex;flex-wrap:wrap;gap:18px;align-items:flex-start}"
    ".row{flex-basis:100%}.part{max-width:100%;overflow-x:auto}.part "
    "svg{display:block;height:auto;max-width:100%;"
    "min-width:min(var(--least),100%)}.part.wide svg{min-width:var(--least)}"
    ".wrap{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.9rem;"
    "font-variant-numeric:tabular-nums}th,td{padding:5px 9px;border-bottom:1px solid var(--line);"
    "text-align:left;vertical-align:top}td.n,th.n{text-align:right;white-space:nowrap}"
    "thead th{color:var(--fig-quiet);font-weight:500}.fails{color:#b3261e;font-weight:600}"
    ".holds{color:var(--fig-green);font-weight:600}code{font-size:.9em;white-space:nowrap}"
    "@media screen and (prefers-color-scheme:dark){.fails{color:#ff8a80}}"
    "@media (max-width:560px){header,main{padding-left:12px;padding-right:12px}"
    "section{padding:14px 12px}"
    "#findings thead{position:absolute;clip-path:inset(50%)}#findings caption{display:block}"
    "#findings table,#findings tbody,#findings tr,#findings td,#findings th{display:block;border:0;"
    "padding:1px 0}#findings tr{border-bottom:1px solid var(--line);padding:8px 0}"
    "#findings td::before{content:attr(data-label);display:block;color:var(--fig-quiet);"
    "font-size:.78rem}}"
    "@media print{section{border:0;padding:0}tr,.part{break-inside:avoid}h2{break-after:avoid}"
    ".part,.wrap{overflow:visible}.part.wide svg{min-width:0}nav{display:none}"
    ".wrap table{font-size:.52rem}.wrap code{white-space:normal;overflow-wrap:anywhere}"
    ".wrap th,.wrap td{padding:2px 3px;white-space:normal}#points tbody th{overflow-wrap:anywhere}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}";

static void add_figure(struct erg_text *out, const struct figure *figure)
{
    erg_text_printf(out, "<section id=\"fig%d\"><h2>Figure %d: ", figure->number, figure->number);
    erg_svg_escape(out, figure->title);
    erg_text_add(out, "</h2>\n<p>");
    erg_svg_escape(out, figure->caption);
    erg_text_printf(out,
                    " <a href=\"figures/fig%02d.svg\">SVG</a>, <a "
                    "href=\"figures/fig%02d.csv\">CSV</a>.</p>\n<div class=\"parts\">\n",
                    figure->number, figure->number);
    for (size_t i = 0; i < figure->count; i++) {
        const struct figure_part *part = &figure->parts[i];
        /* Text stays readable: content that is much wider than a telephone scrolls. */
        erg_text_printf(
            out,
            "%s<div class=\"part%s\" tabindex=\"0\" role=\"region\" aria-label=\"Figure "
            "%d, part %zu\"><svg viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "role=\"img\" aria-label=\"%s, part %zu of %zu; its values are in "
            "fig%02d.csv\" style=\"--least:%.0fpx\">\n",
            part->begins_row ? "<div class=\"row\"></div>\n" : "", part->width > 340 ? " wide" : "",
            figure->number, i + 1, part->width, part->height, part->width, figure->title, i + 1,
            figure->count, figure->number,
            part->width > 340 ? 0.88 * part->width : 0.8 * part->width);
        if (i == 0)
            add_ids(out, figure);
        erg_text_add_bytes(out, part->body.data, part->body.count);
        erg_text_add(out, "</svg></div>\n");
    }
    erg_text_add(out, "</div>\n</section>\n");
}

static void add_cell(struct erg_text *out, const char *label, const char *style, const char *text)
{
    erg_text_printf(out, "<td data-label=\"%s\"%s%s%s>", label, style ? " class=\"" : "",
                    style ? style : "", style ? "\"" : "");
    erg_svg_escape(out, text);
    erg_text_add(out, "</td>");
}

/* A section with one table. */
struct table {
    const char *id, *title, *text, *caption;
    const char *heads[16]; /* the first one is that of the rows */
    size_t numbers;        /* how many after the first are heads of numbers */
};

static void begin_table(struct erg_text *out, const struct table *table)
{
    erg_text_printf(out,
                    "<section id=\"%s\"><h2>%s</h2>\n<p>%s</p>\n<div class=\"wrap\" "
                    "tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table><caption "
                    "class=\"unseen\">%s</caption><thead><tr>",
                    table->id, table->title, table->text, table->title, table->caption);
    for (size_t i = 0; table->heads[i]; i++)
        erg_text_printf(out, "<th scope=\"col\"%s>%s</th>",
                        i > 0 && i <= table->numbers ? " class=\"n\"" : "", table->heads[i]);
    erg_text_add(out, "</tr></thead><tbody>\n");
}

static void end_table(struct erg_text *out)
{
    erg_text_add(out, "</tbody></table></div></section>\n");
}

static void begin_row(struct erg_text *out, const char *head)
{
    erg_text_add(out, "<tr><th scope=\"row\">");
    erg_svg_escape(out, head);
}

static void add_findings(struct erg_text *out, const struct erg_findings *findings)
{
    static const struct table table = {
        .id = "findings",
        .title = "Findings",
        .text = "Findings of the published study, checked on these points. Findings that are not "
                "reproduced are listed, too.",
        .caption = "Published findings and what these points show",
        .heads = {"number", "claim", "expected here", "ours", "verdict"},
    };
    begin_table(out, &table);
    for (size_t i = 0; i < findings->count; i++) {
        const struct erg_study_finding *finding = &findings->items[i];
        const char *verdict = erg_finding_verdict_names[finding->verdict];
        begin_row(out, finding->id);
        erg_text_add(out, "</th>");
        add_cell(out, "claim", NULL, finding->claim);
        add_cell(out, "expected here", NULL, finding->expected);
        add_cell(out, "ours", NULL, finding->ours);
        add_cell(out, "verdict",
                 finding->verdict == ERG_VERDICT_FAILS   ? "fails"
                 : finding->verdict == ERG_VERDICT_HOLDS ? "holds"
                                                         : NULL,
                 verdict);
        erg_text_add(out, "</tr>\n");
    }
    end_table(out);
}

static void add_number(struct erg_text *out, double value, int digits)
{
    erg_text_add(out, "<td class=\"n\">");
    if (isnan(value)) {
        erg_text_add(out, "–");
    } else {
        char number[48];
        snprintf(number, sizeof number, "%.*g", digits, value);
        erg_text_add(out, number);
    }
    erg_text_add(out, "</td>");
}

static void add_point(struct erg_text *out, const struct erg_collected *mark)
{
    const struct erg_study_result *result = mark->result;
    const struct erg_result_metrics *m = &result->metrics;
    begin_row(out, mark->name);
    erg_text_printf(out, "%s</th>", mark->equal ? " =" : "");
    if (result->status != ERG_RESULT_OK) {
        erg_text_printf(out, "<td colspan=\"12\">%s: ", erg_result_status_names[result->status]);
        erg_svg_escape(out, result->message ? result->message : "");
        erg_text_printf(out, "</td><td><code>%s</code></td></tr>\n", mark->id);
        return;
    }
    add_number(out, m->time_s, 4);
    add_number(out, m->tokens_per_s_gpu, 5);
    add_number(out, 100 * m->mfu, 3);
    add_number(out, m->energy_j / 1e3, 6);
    add_number(out, m->tokens_per_j, 3);
    add_number(out, m->eff_edp, 3);
    add_number(out, m->power_w.mean, 4);
    add_number(out, m->temperature_c.mean, 3);
    add_number(out, m->temperature_c.peak, 3);
    add_number(out, m->busy_clock_mhz, 4);
    add_number(out, 100 * m->bubble, 3);
    add_number(out, 100 * m->exposed_share, 3);
    erg_text_printf(out, "<td><code>%s</code></td></tr>\n", mark->id);
}

static void add_points(struct erg_text *out, const struct erg_collection *collection)
{
    static const struct table table = {
        .id = "points",
        .title = "Points",
        .text = "Values of one iteration. T: GPU temperature; bubble: time in which GPUs wait for "
                "the pipeline; exposed: time of communication under no compute; act: activations "
                "computed again; cc: communication under compute. “=”: another point of the list "
                "has the same configuration, and both are one run.",
        .caption = "Every point of the study",
        .heads = {"point", "time, s", "tokens/s/GPU", "MFU, %", "energy, kJ", "tokens/J",
                  "samples/(s MJ)", "power, W", "T mean, °C", "T highest, °C", "busy clock, MHz",
                  "bubble, %", "exposed, %", "ID"},
        .numbers = 12,
    };
    begin_table(out, &table);
    for (size_t i = 0; i < collection->count; i++)
        add_point(out, &collection->marks[i]);
    end_table(out);
}

/* ---- twins ---- */

/* Ours against what was measured, a share; for temperatures the difference. */
struct twin_errors {
    double time, energy, clock, temperature_k;
};

static struct twin_errors errors_of(const struct erg_collected *mark)
{
    const struct erg_result_metrics *a = &mark->result->metrics, *b = &mark->twin->metrics;
    return (struct twin_errors){
        .time = b->time_s / a->time_s - 1,
        .energy = b->energy_j / a->energy_j - 1,
        .clock = b->clock_mhz / a->clock_mhz - 1,
        .temperature_k = b->temperature_c.mean - a->temperature_c.mean,
    };
}

static double median_error(const struct erg_collection *collection, size_t offset)
{
    double *errors = erg_xcalloc(collection->count + 1, sizeof *errors);
    size_t count = 0;
    for (size_t i = 0; i < collection->count; i++) {
        if (!collection->marks[i].twin || collection->marks[i].equal)
            continue;
        const struct twin_errors all = errors_of(&collection->marks[i]);
        double own;
        memcpy(&own, (const char *)&all + offset, sizeof own);
        if (!isnan(own))
            errors[count++] = fabs(own);
    }
    const double median = count ? erg_median(errors, count) : (double)NAN;
    free(errors);
    return median;
}

static void add_twin(struct erg_text *out, const struct erg_collected *mark)
{
    const struct erg_result_metrics *a = &mark->result->metrics, *b = &mark->twin->metrics;
    const struct twin_errors errors = errors_of(mark);
    begin_row(out, mark->name);
    erg_text_add(out, "</th>");
    add_number(out, a->time_s, 4);
    add_number(out, b->time_s, 4);
    add_number(out, 100 * errors.time, 3);
    add_number(out, a->energy_j, 4);
    add_number(out, b->energy_j, 4);
    add_number(out, 100 * errors.energy, 3);
    add_number(out, a->clock_mhz, 4);
    add_number(out, b->clock_mhz, 4);
    add_number(out, 100 * errors.clock, 3);
    add_number(out, a->temperature_c.mean, 3);
    add_number(out, b->temperature_c.mean, 3);
    add_number(out, errors.temperature_k, 3);
    erg_text_add(out, "</tr>\n");
}

static bool has_twins(const struct erg_collection *collection)
{
    for (size_t i = 0; i < collection->count; i++)
        if (collection->marks[i].twin)
            return true;
    return false;
}

static void add_twins(struct erg_text *out, const struct erg_collection *collection)
{
    static const struct table table = {
        .id = "twins",
        .title = "Measured and emulated",
        .text = "Every measured point and the same point on an emulated machine: values of one "
                "iteration, and the difference in % of what was measured, of temperatures (T) in "
                "K.",
        .caption = "Measured points and their emulated twins",
        .heads = {"point", "time, s", "emulated", "%", "energy, J", "emulated", "%", "clock, MHz",
                  "emulated", "%", "T, °C", "emulated", "K"},
        .numbers = 12,
    };
    begin_table(out, &table);
    for (size_t i = 0; i < collection->count; i++)
        if (collection->marks[i].twin)
            add_twin(out, &collection->marks[i]);
    erg_text_add(out, "<tr><th scope=\"row\">median of the differences</th><td></td><td></td>");
    add_number(out, 100 * median_error(collection, offsetof(struct twin_errors, time)), 3);
    erg_text_add(out, "<td></td><td></td>");
    add_number(out, 100 * median_error(collection, offsetof(struct twin_errors, energy)), 3);
    erg_text_add(out, "<td></td><td></td>");
    add_number(out, 100 * median_error(collection, offsetof(struct twin_errors, clock)), 3);
    erg_text_add(out, "<td></td><td></td>");
    add_number(out, median_error(collection, offsetof(struct twin_errors, temperature_k)), 3);
    erg_text_add(out, "</tr>\n</tbody></table></div></section>\n");
}

/* "50 of 60 points ran, 10 are out of memory; 12 of 14 findings hold." */
static void add_headline(struct erg_text *out, const struct erg_collection *collection,
                         const struct erg_findings *findings)
{
    size_t counts[ERG_RESULT_SKIPPED + 1] = {0}, hold = 0, checked = 0;
    for (size_t i = 0; i < collection->count; i++)
        counts[collection->marks[i].result->status]++;
    erg_text_printf(out, "%zu of %zu points ran", counts[ERG_RESULT_OK], collection->count);
    for (size_t i = 0; i <= ERG_RESULT_SKIPPED; i++)
        if (counts[i] && i != ERG_RESULT_OK)
            erg_text_printf(out, ", %zu %s", counts[i],
                            i == ERG_RESULT_MEMORY ? "out of memory" : erg_result_status_names[i]);
    for (size_t i = 0; findings && i < findings->count; i++) {
        const enum erg_finding_verdict verdict = findings->items[i].verdict;
        hold += verdict == ERG_VERDICT_HOLDS;
        checked += verdict == ERG_VERDICT_HOLDS || verdict == ERG_VERDICT_FAILS;
    }
    if (checked)
        erg_text_printf(out, "; %zu of %zu findings hold", hold, checked);
    erg_text_add(out, ".");
}

static double tokens_per_j_of(const struct erg_collected *mark)
{
    return mark->result->status == ERG_RESULT_OK ? mark->result->metrics.tokens_per_j : (double)NAN;
}

/* "TP2 PP16, microbatch 1, cc" */
static void add_words(struct erg_text *out, const struct erg_collected *mark)
{
    erg_svg_escape(out, mark->label);
    erg_text_printf(out, ", microbatch %ld, ", mark->microbatch);
    erg_svg_escape(out, mark->optimisation);
}

/* The point with the most tokens per joule of each model, and the hottest GPU of all. */
static void add_lead(struct erg_text *out, const struct erg_collection *collection)
{
    const struct erg_collected *hottest = NULL;
    bool any = false;
    erg_text_add(out, "<p class=\"lead\">On the cluster ");
    erg_svg_escape(out, collection->cluster);
    erg_text_printf(out, ", seed %ld. ", collection->seed);
    for (size_t i = 0; i < collection->count; i++) {
        const struct erg_collected *mark = &collection->marks[i];
        bool best = !isnan(tokens_per_j_of(mark));
        for (size_t k = 0; best && k < collection->count; k++)
            if (strcmp(collection->marks[k].model, mark->model) == 0)
                best = !(tokens_per_j_of(&collection->marks[k]) > tokens_per_j_of(mark)) &&
                       (k >= i || tokens_per_j_of(&collection->marks[k]) != tokens_per_j_of(mark));
        if (best) {
            erg_text_add(out, any ? "; " : "Most tokens per joule: ");
            erg_svg_escape(out, mark->model);
            erg_text_add(out, " with ");
            add_words(out, mark);
            erg_text_printf(out, ", %.3g tokens/J", tokens_per_j_of(mark));
            any = true;
        }
        if (mark->result->status == ERG_RESULT_OK &&
            !isnan(mark->result->metrics.temperature_c.peak) &&
            (!hottest || mark->result->metrics.temperature_c.peak >
                             hottest->result->metrics.temperature_c.peak))
            hottest = mark;
    }
    erg_text_add(out, any ? ". " : "");
    if (hottest) {
        erg_text_printf(out, "The hottest GPU reached %.3g °C, in ",
                        hottest->result->metrics.temperature_c.peak);
        erg_svg_escape(out, hottest->model);
        erg_text_add(out, " with ");
        add_words(out, hottest);
        erg_text_add(out, ".");
    }
    erg_text_add(out, "</p>\n");
}

void erg_figure_page(struct erg_text *out, const struct figure *figures, size_t count,
                     const struct erg_collection *collection, const struct erg_findings *findings)
{
    erg_text_add(out,
                 "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta "
                 "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta "
                 "name=\"color-scheme\" content=\"light dark\">\n<title>ergon characterize: ");
    erg_svg_escape(out, collection->name);
    erg_text_add(
        out, "</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n"
             ":root{--page:#f6f7f9;--line:#d9dfe6}@media screen and (prefers-color-scheme:dark){"
             ":root{--page:#10151b;--line:#323c47}}@media print{:root{--page:#fff}}\n");
    add_colours(out, ":root");
    erg_text_printf(out, "\n%s\n%s\n</style>\n</head>\n<body>\n", marks_style, page_style);
    erg_text_add(out, "<svg width=\"0\" height=\"0\" style=\"position:absolute\" "
                      "aria-hidden=\"true\">");
    erg_text_add(out, hatch);
    erg_text_add(out, "</svg>\n<header><p class=\"brand\">ergon characterize<span>");
    erg_svg_escape(out, collection->name);
    erg_text_add(out, "</span></p>\n<h1 id=\"headline\">");
    add_headline(out, collection, findings);
    erg_text_add(out, "</h1>\n");
    add_lead(out, collection);
    erg_text_printf(out,
                    "<p class=\"next\" id=\"next\"><b>Next:</b> compare time, energy and heat of "
                    "the layouts in %s, then train the one that you choose: <code>ergon train "
                    "job.yaml</code>.</p>\n",
                    count ? "the figures" : "the table of points");
    erg_text_add(out, "<nav aria-label=\"Parts of the page\">");
    for (size_t i = 0; i < count; i++)
        erg_text_printf(out, "<a href=\"#fig%d\">Figure %d: %s</a>", figures[i].number,
                        figures[i].number, figures[i].title);
    erg_text_printf(out, "%s<a href=\"#points\">Points</a></nav></header>\n<main>\n",
                    findings ? "<a href=\"#findings\">Findings</a>" : "");
    for (size_t i = 0; i < count; i++)
        add_figure(out, &figures[i]);
    if (has_twins(collection))
        add_twins(out, collection);
    if (findings)
        add_findings(out, findings);
    add_points(out, collection);
    erg_text_add(
        out, "<section><h2>Limits of these numbers</h2>\n<p>Emulated points come from a model of "
             "the GPU, its power and its cooling, whose constants are partly assumed: the files of "
             "data/gpus, data/engines and data/chassis give the source of each. Energy of emulated "
             "points is exact for the model; the values that sensors would have shown are listed "
             "separately. Nothing was checked with "
             "an external meter. Peaks depend on the regulator of the power cap and are not "
             "required to agree with anything.</p></section>\n</main>\n</body>\n</html>\n");
}
