/* The tables and the JSON that ergon probe prints. */
#include "probe/probe_print.h"
#include "io/print.h"

#include "base/table.h"
#include "base/text.h"
#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* How a family's amounts, rates and energies are written. */
static const struct family {
    const char *title, *name;
    double amount_factor, rate_factor;
    const char *amount_unit, *rate_unit, *energy_unit;
    const char *share; /* of what */
} families[] = {
    [ERG_PROBE_PRODUCT] = {"products", "product", 1e-9, 1e-12, "GFLOP", "TFLOP/s", "pJ/FLOP",
                           "of peak (2)"},
    [ERG_PROBE_MEMORY] = {"memory", "memory", 1e-6, 1e-9, "MB", "GB/s", "pJ/B", "of datasheet"},
    [ERG_PROBE_ATTENTION] = {"attention", "attention", 1e-9, 1e-12, "GFLOP", "TFLOP/s", "pJ/FLOP",
                             "of peak (2)"},
    [ERG_PROBE_COLLECTIVE] = {"collectives, one direction", "collective", 1e-6, 1e-9, "MB", "GB/s",
                              "", "of datasheet"},
    [ERG_PROBE_BLOCKED] = {"waiting for another GPU", "blocked", 0, 0, "", "", "", ""},
    [ERG_PROBE_REST] = {"nothing to do", "rest", 0, 0, "", "", "", ""},
};

/* ---- for people ---- */

static void add_blanks(struct erg_table *table, int count)
{
    for (int i = 0; i < count; i++)
        erg_table_add(table, "%s", "");
}

static void add_heads(struct erg_table *table, const struct family *family)
{
    erg_table_add(table, "%s", family->title);
    if (family->amount_factor > 0) {
        erg_table_add(table, "%s", "size (1)");
        erg_table_add(table, "%s", "rate");
        erg_table_add(table, "%s", family->share);
    }
    erg_table_add(table, "%s", "clock");
    erg_table_add(table, "%s", "power");
    if (*family->energy_unit)
        erg_table_add(table, "%s", "energy (3)");
    add_blanks(table, 1);
}

static void add_ceiling(struct erg_table *table, const struct erg_probe_ceiling *ceiling,
                        const struct family *family)
{
    erg_table_add(table, "%s %s", ceiling->shape, ceiling->name);
    if (family->amount_factor > 0 && !(ceiling->rate > 0)) {
        add_blanks(table, 3); /* what it is compared with was not measured */
    } else if (family->amount_factor > 0) {
        erg_table_add(table, "%.0f %s", ceiling->amount * family->amount_factor,
                      family->amount_unit);
        erg_table_add(table, "%.0f %s", ceiling->rate * family->rate_factor, family->rate_unit);
        erg_table_add(table, "%.0f %%", 100 * ceiling->share);
    }
    erg_table_add(table, "%.0f MHz", ceiling->clock_mhz);
    erg_table_add(table, "%.0f W", ceiling->power_w);
    if (*family->energy_unit)
        erg_table_add(table, "%.2f %s", ceiling->unit_j * 1e12, family->energy_unit);
    add_blanks(table, 1);
}

static size_t columns_of(const struct family *family)
{
    return 4u + (family->amount_factor > 0 ? 3 : 0) + (*family->energy_unit ? 1 : 0);
}

static void print_family(struct erg_text *text, const struct erg_probe_ceilings *ceilings,
                         enum erg_probe_family number)
{
    const struct family *family = &families[number];
    struct erg_table table = {.columns = columns_of(family)};
    for (size_t i = 0; i < ceilings->count; i++) {
        if (ceilings->items[i].family != number)
            continue;
        if (!table.count)
            add_heads(&table, family);
        add_ceiling(&table, &ceilings->items[i], family);
    }
    if (table.count) {
        erg_table_text(text, &table, "");
        erg_text_add(text, "\n");
    }
    erg_table_release(&table);
}

static void print_ceilings(FILE *out, const struct erg_probe_findings *findings)
{
    struct erg_text text = {0};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        if (families[f].title)
            print_family(&text, findings->ceilings, (enum erg_probe_family)f);
    for (size_t i = 0; text.data && i < findings->program_count; i++) {
        const struct erg_probe_program *program = &findings->programs[i];
        erg_text_printf(
            &text, "%s: a layer of hidden size %ld with an FFN of %ld, %d x %d tokens%s\n",
            program->name, program->model->hidden, program->model->ffn, program->sequences,
            program->sequence, program->context > 1 ? ", each sequence on two GPUs" : "");
    }
    if (text.data)
        fprintf(out,
                "%seach on %d GPU%s\n"
                "fwd, bwd: forward, backward; 4 x: so often in a row; of 1: of one sequence only\n"
                "(1) of one operation on one GPU\n"
                "(2) what the GPU could do at the clock it ran at\n"
                "(3) beyond that at rest\n",
                text.data, findings->gpus, erg_plural((size_t)findings->gpus));
    erg_text_release(&text);
}

static void print_fit(FILE *out, const struct erg_probe_fit *fit, const char *path)
{
    struct erg_table table = {.columns = 4};
    struct erg_text text = {0};
    erg_table_add(&table, "%s", "constant");
    erg_table_add(&table, "%s", "before");
    erg_table_add(&table, "%s", "after");
    add_blanks(&table, 1);
    for (size_t i = 0; i < fit->count; i++) {
        erg_table_add(&table, "%s", fit->constants[i].name);
        erg_table_add(&table, "%.4g", fit->constants[i].before);
        erg_table_add(&table, "%.4g", fit->constants[i].after);
        erg_table_add(&table, "%s", fit->constants[i].origin);
    }
    erg_table_text(&text, &table, "");
    fprintf(out, "\n%s", text.data);
    if (fit->lowered)
        fprintf(
            out,
            "%zu measurement%s left out: the GPU%s ran below %.0f MHz, slowed down by something "
            "else than work\n",
            fit->lowered, erg_plural(fit->lowered), erg_plural((size_t)fit->lowered),
            fit->lowered_mhz);
    fprintf(out,
            "%zu measurement%s fitted with a mean error of %.1f %% in time and %.1f %% in energy: "
            "%s, %s\n",
            fit->observations, erg_plural(fit->observations), 100 * fit->time_error,
            100 * fit->energy_error, fit->name, path);
    erg_text_release(&text);
    erg_table_release(&table);
}

void erg_probe_print(FILE *out, const struct erg_probe_findings *findings)
{
    print_ceilings(out, findings);
    if (findings->fit)
        print_fit(out, findings->fit, findings->path);
}

/* ---- for programs ---- */

static json_t *ceiling_document(const struct erg_probe_ceiling *ceiling)
{
    bool rated = ceiling->rate > 0;
    return erg_json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "shape", ceiling->shape,
                         "name", ceiling->name, "kind", families[ceiling->family].name, "amount",
                         erg_json_number(rated ? ceiling->amount : NAN), "rate_per_s",
                         erg_json_number(rated ? ceiling->rate : NAN), "share",
                         erg_json_number(rated ? ceiling->share : NAN), "power_w",
                         erg_json_number(ceiling->power_w), "unit_j",
                         erg_json_number(ceiling->unit_j), "clock_mhz",
                         erg_json_number(ceiling->clock_mhz));
}

static void add_fit(json_t *root, const struct erg_probe_fit *fit)
{
    json_t *constants = json_object();
    for (size_t i = 0; i < fit->count; i++)
        json_object_set_new(constants, fit->constants[i].name,
                            erg_json_pack("{s:o, s:o, s:b, s:s}", "before",
                                          erg_json_number(fit->constants[i].before), "after",
                                          erg_json_number(fit->constants[i].after), "seen",
                                          fit->constants[i].seen, "origin",
                                          fit->constants[i].origin));
    json_object_set_new(root, "constants", constants);
    json_object_set_new(root, "measurements", json_integer((json_int_t)fit->observations));
    json_object_set_new(root, "left_out", json_integer((json_int_t)fit->lowered));
    json_object_set_new(root, "time_error", erg_json_number(fit->time_error));
    json_object_set_new(root, "energy_error", erg_json_number(fit->energy_error));
}

void erg_probe_print_json(FILE *out, const struct erg_probe_findings *findings)
{
    const struct erg_probe_fit *fit = findings->fit;
    json_t *list = json_array();
    for (size_t i = 0; i < findings->ceilings->count; i++)
        json_array_append_new(list, ceiling_document(&findings->ceilings->items[i]));
    json_t *root = erg_json_pack("{s:i, s:s, s:s, s:i, s:o}", "schema_version", 1, "gpu",
                                 fit ? fit->name : findings->board, "base", findings->gpu->name,
                                 "gpus", findings->gpus, "ceilings", list);
    if (fit)
        add_fit(root, fit);
    erg_print_json(out, root);
}
