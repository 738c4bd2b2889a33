/* The comparison as lines of text. */
#include "report/report_internal.h"

#include "base/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS = 7, CELL_BYTES = 96 };

static void widen(size_t *columns, const char *text)
{
    size_t width = erg_text_width(text);
    *columns = width > *columns ? width : *columns;
}

static void percent(char *cell, const json_t *versus, const char *key)
{
    double value = erg_json_number_or(versus, key, NAN);
    if (isnan(value))
        snprintf(cell, CELL_BYTES, "–");
    else /* + 0.0 turns a rounded -0.0 into 0.0 */
        snprintf(cell, CELL_BYTES, "%.1f %%", round(value * 10) / 10 + 0.0);
}

static void add_row(struct erg_text *out, char cells[COLUMNS][CELL_BYTES], const size_t *widths)
{
    for (int c = 0; c < COLUMNS; c++) {
        erg_text_add(out, c ? "  " : "");
        erg_text_add_padded(out, cells[c], widths[c], c > 0);
    }
    erg_text_add(out, "\n");
}

/* The units of times and energies: small jobs need finer units and more digits. */
struct scale {
    int time_places, energy_places;
    double energy_unit_j;
    const char *energy_unit;
};

/* Decimal places for three digits of a value. */
static int places_for(double value)
{
    return value > 0 ? (int)fmin(9, fmax(0, 2 - floor(log10(value)))) : 0;
}

static struct scale choose_scale(const json_t *plan)
{
    double least_s = INFINITY, least_j = INFINITY;
    const char *name;
    json_t *method;
    json_object_foreach(json_object_get(plan, "methods"), name, method)
    {
        const json_t *fastest = json_array_get(json_object_get(method, "points"), 0);
        least_s = fmin(least_s, erg_json_number_or(fastest, "time_s", INFINITY));
        least_j = fmin(least_j, erg_json_number_or(fastest, "energy_j", INFINITY));
    }
    struct scale scale = {.time_places = (int)fmax(3, places_for(least_s)),
                          .energy_places = 2,
                          .energy_unit_j = 1e3,
                          .energy_unit = "kJ"};
    if (least_j < 1e3) {
        scale.energy_places = (int)fmax(1, places_for(least_j));
        scale.energy_unit_j = 1;
        scale.energy_unit = "J";
    }
    return scale;
}

static void print_time(char *cell, const struct scale *scale, const json_t *point)
{
    snprintf(cell, CELL_BYTES, "%.*f s", scale->time_places,
             erg_json_number_or(point, "time_s", NAN));
}

static void print_energy(char *cell, const struct scale *scale, const json_t *point)
{
    snprintf(cell, CELL_BYTES, "%.*f %s", scale->energy_places,
             erg_json_number_or(point, "energy_j", NAN) / scale->energy_unit_j, scale->energy_unit);
}

static void fill_row(char cells[COLUMNS][CELL_BYTES], const struct scale *scale, const char *name,
                     const json_t *method)
{
    const json_t *fastest = json_array_get(json_object_get(method, "points"), 0);
    const json_t *versus = json_object_get(method, "versus");
    snprintf(cells[0], CELL_BYTES, "%s", name);
    if (fastest) {
        print_time(cells[1], scale, fastest);
        print_energy(cells[2], scale, fastest);
    } else {
        snprintf(cells[1], CELL_BYTES, "–");
        snprintf(cells[2], CELL_BYTES, "–");
    }
    percent(cells[3], versus, "max_throughput_time_reduction_percent");
    percent(cells[4], versus, "max_throughput_energy_reduction_percent");
    percent(cells[5], versus, "iso_time_energy_reduction_percent");
    percent(cells[6], versus, "iso_energy_time_reduction_percent");
}

/* The measured GPUs; with several kinds, the number of stages on each. */
static void add_devices(struct erg_text *out, const json_t *plan)
{
    const json_t *kinds = json_object_get(plan, "kinds");
    long stages = erg_report_long(json_object_get(plan, "job"), "pipeline", 1);
    size_t count = json_array_size(kinds);
    for (size_t k = 0; k < count || k == 0; k++) {
        const json_t *kind = json_array_get(kinds, k);
        double mean_mhz = erg_json_number_or(kind, "mean_clock_mhz", NAN);
        erg_text_printf(out, "%s%s", k ? ", " : "", erg_report_string(kind, "device", "?"));
        if (!isnan(mean_mhz))
            erg_text_printf(out, " at their default clock (mean %.0f MHz)", mean_mhz);
        long own = 0;
        for (long s = 0; s < stages; s++)
            own += erg_report_stage_kind(plan, (size_t)s) == kind;
        if (count > 1)
            erg_text_printf(out, " (%ld stage%s)", own, erg_plural((size_t)own));
    }
}

static void add_confidence(struct erg_text *out, const json_t *plan)
{
    const json_t *kinds = json_object_get(plan, "kinds");
    for (size_t k = 0; k < json_array_size(kinds); k++) {
        const json_t *kind = json_array_get(kinds, k);
        const char *confidence = erg_report_string(kind, "confidence", NULL);
        if (!confidence)
            continue;
        if (json_array_size(kinds) > 1)
            erg_text_printf(out, "the model of %s: %s\n", erg_report_string(kind, "gpu", "?"),
                            confidence);
        else
            erg_text_printf(out, "its model: %s\n", confidence);
    }
}

static void add_heading(struct erg_text *out, const json_t *plan)
{
    const json_t *job = json_object_get(plan, "job");
    long stages = erg_report_long(job, "pipeline", 1);
    long gpus = erg_report_long(job, "gpus_per_stage", 1);
    long microbatches = erg_report_long(job, "microbatches", 0);
    const char *model = erg_report_string(job, "model", NULL);
    long size = erg_report_long(job, "microbatch_size", 0);
    long sequence = erg_report_long(job, "sequence", 0);
    erg_text_printf(out, "%s: %s%s%ld stage%s of %ld GPU%s, %ld microbatch%s",
                    erg_report_string(job, "name", "?"), model ? model : "", model ? ", " : "",
                    stages, erg_plural((size_t)stages), gpus, erg_plural((size_t)gpus),
                    microbatches, microbatches == 1 ? "" : "es");
    if (size && sequence)
        erg_text_printf(out, " of %ld x %ld tokens", size, sequence);
    if (json_is_true(json_object_get(job, "sequence_parallel")))
        erg_text_add(out, ", sequence parallel");
    erg_text_add(out, "\nmeasured on ");
    add_devices(out, plan);
    const char *search = erg_report_string(json_object_get(plan, "search"), "method", NULL);
    if (search)
        erg_text_printf(out, ", search %s, seed %ld", search, erg_report_long(plan, "seed", 0));
    erg_text_add(out, "\n");
    add_confidence(out, plan);
    erg_text_add(out, "\n");
}

static void add_selected(struct erg_text *out, const struct scale *scale, const json_t *plan)
{
    const json_t *selected = json_object_get(plan, "selected");
    const char *name = erg_report_string(selected, "method", "");
    const json_t *points =
        json_object_get(json_object_get(json_object_get(plan, "methods"), name), "points");
    long index = erg_report_long(selected, "point", -1);
    const json_t *point = index >= 0 ? json_array_get(points, (size_t)index) : NULL;
    if (!point)
        return;
    char time[CELL_BYTES], energy[CELL_BYTES];
    print_time(time, scale, point);
    print_energy(energy, scale, point);
    erg_text_printf(out, "\nselected: %s, point %ld of %zu (%s): %s, %s\n", name, index + 1,
                    json_array_size(points), erg_report_string(selected, "rule", "?"), time,
                    energy);
    const json_t *beyond = json_object_get(plan, "beyond");
    if (!beyond)
        return;
    print_time(time, scale, beyond);
    print_energy(energy, scale, beyond);
    erg_text_printf(out, "a step takes beyond it: %s, %s, for gradients and optimizer\n", time,
                    energy);
}

int erg_report_table(struct erg_text *out, const json_t *plan, struct erg_error *err)
{
    if (erg_report_check(plan, err))
        return erg_fail_context(err, "writing the comparison");
    static const char *const heads[2][COLUMNS] = {
        {"", "fastest", "", "time", "energy", "energy saved", "time saved"},
        {"method", "time", "energy", "saved (1)", "saved (1)", "same time (2)", "same energy (2)"}};
    size_t widths[COLUMNS] = {0};
    char cells[COLUMNS][CELL_BYTES];
    const struct scale scale = choose_scale(plan);
    const char *name;
    json_t *methods = json_object_get(plan, "methods"), *method;
    for (int c = 0; c < COLUMNS; c++)
        for (int line = 0; line < 2; line++)
            widen(&widths[c], heads[line][c]);
    json_object_foreach(methods, name, method)
    {
        fill_row(cells, &scale, name, method);
        for (int c = 0; c < COLUMNS; c++)
            widen(&widths[c], cells[c]);
    }
    add_heading(out, plan);
    for (int line = 0; line < 2; line++) {
        for (int c = 0; c < COLUMNS; c++)
            snprintf(cells[c], CELL_BYTES, "%s", heads[line][c]);
        add_row(out, cells, widths);
    }
    json_object_foreach(methods, name, method)
    {
        fill_row(cells, &scale, name, method);
        add_row(out, cells, widths);
    }
    erg_text_add(out,
                 "\n(1) the fastest plan against sequential at full clock\n"
                 "(2) against sequential+clocks: within the time of its fastest plan, within the\n"
                 "    energy of its cheapest; – where no plan is that fast or that frugal\n");
    add_selected(out, &scale, plan);
    return 0;
}
