/* A fitted engine as tables. */
#include "api/fit_print.h"

#include "base/table.h"
#include "io/print.h"

#include <math.h>
#include <string.h>

static void add_errors(struct erg_table *table, const char *name,
                       const struct erg_fit_errors *errors)
{
    erg_table_add(table, "%s", name);
    erg_table_add(table, "%.2f %%", 100 * errors->mean);
    erg_table_add(table, "%.2f %%", 100 * errors->most);
    erg_table_add(table, "%.3f", errors->spearman);
}

/* "t1 c1 p2 d1, 4 x 2 x 4096" */
static void add_layout(struct erg_table *table, const struct erg_fit_row *row)
{
    const struct erg_layout *layout = &row->layout;
    struct erg_text text = {0};
    erg_text_printf(&text, "t%ld c%ld p%ld d%ld", layout->tensor, layout->context, layout->pipeline,
                    layout->data);
    if (layout->virtual_stages > 1)
        erg_text_printf(&text, " v%ld", layout->virtual_stages);
    erg_text_printf(&text, ", %ld x %ld x %ld", layout->microbatches, layout->microbatch,
                    layout->sequence);
    if (strcmp(erg_layout_recompute_name(layout), "none") != 0)
        erg_text_printf(&text, ", %s", erg_layout_recompute_name(layout));
    if (row->sequence_parallel == ERG_FIT_PARALLEL)
        erg_text_add(&text, ", sp");
    erg_table_add(table, "%s", text.data);
    erg_text_release(&text);
}

/* A number of a run in its unit, or that it is not known. */
static void add_known(struct erg_table *table, const char *sign, double value, const char *unit)
{
    if (isnan(value))
        erg_table_add(table, "not known");
    else
        erg_table_add(table, "%s%.3g %s", sign, value, unit);
}

/* The measurements of the runs. */
static void add_runs(struct erg_text *text, const struct erg_fit_call *at)
{
    static const char *const heads[] = {"run",    "device", "layout",    "steps",
                                        "step",   "spread", "tok/s",     "predicted",
                                        "memory", "energy", "predicted", ""};
    struct erg_table table = {.columns = sizeof heads / sizeof *heads};
    for (size_t i = 0; i < table.columns; i++)
        erg_table_add(&table, "%s", heads[i]);
    for (size_t i = 0; i < at->rows.count; i++) {
        const struct erg_fit_row *row = &at->rows.items[i];
        if (!row->run)
            continue;
        erg_table_add(&table, "%s", row->path);
        erg_table_add(&table, "%s", row->device);
        add_layout(&table, row);
        erg_table_add(&table, "%ld", row->run->steps);
        erg_table_add(&table, "%.4g ms", 1e3 * row->time_s);
        add_known(&table, "± ", 100 * row->run->spread, "%");
        erg_table_add(&table, "%.5g", erg_fitting_rate(row));
        erg_table_add(&table, "%.4g ms", 1e3 * erg_fitting_s(at, i));
        add_known(&table, "", row->run->memory_bytes / 0x1p30, "GiB");
        add_known(&table, "", row->run->energy_j, "J");
        erg_table_add(&table, "%.3g J", erg_fitting_j(at, row));
        erg_table_add(&table, "%s", "");
    }
    if (at->input->run_count) {
        erg_table_text(text, &table, "");
        erg_text_add(text, "\n");
    }
    erg_table_release(&table);
}

void erg_fit_print(FILE *out, const struct erg_fit_call *at)
{
    struct erg_table constants = {.columns = 4}, errors = {.columns = 4};
    struct erg_text text = {0}, untold = {0};
    erg_table_add(&constants, "constant");
    erg_table_add(&constants, "start");
    erg_table_add(&constants, "fitted");
    erg_table_add(&constants, "uncertainty");
    for (size_t k = 0; k < at->fit.constants; k++) {
        erg_table_add(&constants, "%s", at->keys[k]);
        erg_table_add(&constants, "%.4g", erg_fitting_unit(at->start, at->keys[k]));
        erg_table_add(&constants, "%.4g", erg_fitting_unit(&at->fit.engine, at->keys[k]));
        if (isinf(at->fit.uncertainty[k])) {
            erg_table_add(&constants, "not told");
            erg_text_printf(&untold, "%s%s", untold.count ? ", " : "", at->keys[k]);
        } else {
            erg_table_add(&constants, "± %.1f %%", 100 * at->fit.uncertainty[k]);
        }
    }
    erg_table_add(&errors, "error");
    erg_table_add(&errors, "mean");
    erg_table_add(&errors, "worst");
    erg_table_add(&errors, "rank agreement");
    add_errors(&errors, "of the rows fitted to", &at->fit.fitted);
    add_errors(&errors, "of rows held out", &at->fit.held_out);
    add_runs(&text, at);
    erg_table_text(&text, &constants, "");
    erg_text_add(&text, "\n");
    erg_table_text(&text, &errors, "");
    erg_text_printf(&text, "\n%zu rows; held out in %ld folds:", at->rows.count, at->input->folds);
    for (long fold = 0; fold < at->input->folds; fold++)
        erg_text_printf(&text, " %.2f %%", 100 * at->fit.fold_mean[fold]);
    const size_t worst = at->fit.fitted.worst;
    const struct erg_fit_row *row = &at->rows.items[worst];
    struct erg_arena arena = {0};
    erg_text_printf(&text, "\nFurthest off: %s: %.4g s measured, %.4g s predicted\n",
                    erg_fit_row_place(row, &arena), row->time_s, erg_fitting_s(at, worst));
    erg_arena_release(&arena);
    if (untold.count)
        erg_text_printf(&text,
                        "These rows do not tell: %s.\n"
                        "Either they do not depend on it, or another constant does the same to all "
                        "of them.\n",
                        untold.data);
    fputs(text.data, out);
    erg_text_release(&text);
    erg_text_release(&untold);
    erg_table_release(&constants);
    erg_table_release(&errors);
}
