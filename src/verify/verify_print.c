/* Verifications of plans as tables and as JSON. */
#include "verify/verify_print.h"

#include "base/table.h"
#include "io/json.h"
#include "io/print.h"

#include <math.h>
#include <stdlib.h>

/* ---- as text ---- */

static const struct erg_verify_row *find_row(const struct erg_verification *verification,
                                             bool backward, enum erg_verify_way way)
{
    for (size_t i = 0; i < verification->row_count; i++)
        if (verification->rows[i].backward == backward && verification->rows[i].way == way)
            return &verification->rows[i];
    return NULL;
}

static double percent(double value, double reference)
{
    return 100 * (value / reference - 1);
}

static void add_costs(struct erg_table *table, const char *direction, const char *way,
                      struct erg_cost composed, struct erg_cost stack, struct erg_cost sequential)
{
    erg_table_add(table, "%s", direction);
    erg_table_add(table, "%s", way);
    erg_table_add(table, "%.3f ms", 1e3 * composed.time_s);
    erg_table_add(table, "%.3f ms", 1e3 * stack.time_s);
    erg_table_add(table, "%+.1f %%", percent(stack.time_s, composed.time_s));
    erg_table_add(table, "%.2f J", composed.energy_j);
    erg_table_add(table, "%.2f J", stack.energy_j);
    erg_table_add(table, "%+.1f %%", percent(stack.energy_j, composed.energy_j));
    erg_table_add(table, "%+.1f %%", percent(stack.time_s, sequential.time_s));
    erg_table_add(table, "%+.1f %%", percent(stack.energy_j, sequential.energy_j));
}

static struct erg_cost sum(struct erg_cost a, struct erg_cost b)
{
    return (struct erg_cost){a.time_s + b.time_s, a.energy_j + b.energy_j};
}

/* Why a stack is not the sum of its pieces where the clock is not what was asked for. */
static void print_clocks(FILE *out, const struct erg_verification *verification)
{
    const double worth_saying = 0.5; /* percent */
    double most = 0;
    for (size_t i = 0; i < verification->row_count; i++)
        most = fmax(most, fabs(percent(verification->rows[i].stack_mhz,
                                       verification->rows[i].composed_mhz)));
    if (most > worth_saying)
        fprintf(
            out,
            "\nAt the power cap all of a stack shares one clock, while each piece alone has its "
            "own: they differ\nby up to %.1f %%, and so do time and energy.\n",
            most);
}

/* The part of the plan in the table, if its instructions differ. */
static void print_shares(FILE *out, const struct erg_verification *verification)
{
    const char *before = "\n";
    for (int d = 0; d < 2; d++) {
        const struct erg_verify_share *share = &verification->shares[d];
        if (share->uses == share->instructions)
            continue;
        fprintf(out, "%sThe plan's %s passes differ: shown is what %zu of %zu run.\n", before,
                erg_direction_names[d], share->uses, share->instructions);
        before = "";
    }
}

static void print_costs(FILE *out, const struct erg_verification *verification)
{
    enum { COLUMNS = 11 };
    static const char *const heads[2][COLUMNS] = {
        {"", "", "time", "", "", "energy", "", "", "to sequential", "", ""},
        {"", "", "composed", "stack", "apart", "composed", "stack", "apart", "time", "energy",
         "clock"},
    };
    struct erg_table table = {0};
    erg_print_heads(&table, heads[0], COLUMNS);
    erg_print_heads(&table, heads[1], COLUMNS);
    for (int backward = 0; backward < 2; backward++)
        for (int way = 0; way < ERG_VERIFY_WAYS; way++) {
            const struct erg_verify_row *row =
                find_row(verification, backward, (enum erg_verify_way)way);
            add_costs(&table, erg_direction_names[backward], erg_verify_way_name(row->way),
                      row->composed, row->stack,
                      find_row(verification, backward, ERG_VERIFY_SEQUENTIAL)->stack);
            erg_table_add(&table, "%.0f MHz, pieces %.0f", row->stack_mhz, row->composed_mhz);
        }
    for (int way = 0; way < ERG_VERIFY_WAYS; way++) {
        const struct erg_verify_row *rows[2], *sequential[2];
        for (int d = 0; d < 2; d++) {
            rows[d] = find_row(verification, d, (enum erg_verify_way)way);
            sequential[d] = find_row(verification, d, ERG_VERIFY_SEQUENTIAL);
        }
        add_costs(&table, "both", erg_verify_way_name((enum erg_verify_way)way),
                  sum(rows[0]->composed, rows[1]->composed), sum(rows[0]->stack, rows[1]->stack),
                  sum(sequential[0]->stack, sequential[1]->stack));
        erg_table_add(&table, "%s", "");
    }
    erg_print_table(out, &table, "");
    print_shares(out, verification);
    print_clocks(out, verification);
}

static void print_partitions(FILE *out, const struct erg_verification *verification)
{
    enum { COLUMNS = 2 + 2 * ERG_VERIFY_WAYS + 4 };
    static const char *const heads[2][COLUMNS] = {
        {"", "one partition", "sequential", "", "nanobatching", "", "plan", "", "to sequential", "",
         "to nanobatching", ""},
        {"", "", "time", "energy", "time", "energy", "time", "energy", "time", "energy", "time",
         "energy"},
    };
    struct erg_table table = {0};
    erg_print_heads(&table, heads[0], COLUMNS);
    erg_print_heads(&table, heads[1], COLUMNS);
    for (size_t i = 0; i < verification->partition_count; i++) {
        const struct erg_verify_partition *partition = &verification->partitions[i];
        struct erg_cost plan = partition->costs[ERG_VERIFY_PLAN];
        erg_table_add(&table, "%s", erg_direction_names[partition->backward]);
        erg_table_add(&table, "%s", partition->name);
        for (int way = 0; way < ERG_VERIFY_WAYS; way++) {
            erg_table_add(&table, "%.3f ms", 1e3 * partition->costs[way].time_s);
            erg_table_add(&table, "%.3f J", partition->costs[way].energy_j);
        }
        for (int way = 0; way < ERG_VERIFY_PLAN; way++) {
            struct erg_cost other = partition->costs[way];
            erg_table_add(&table, "%+.1f %%", percent(plan.time_s, other.time_s));
            erg_table_add(&table, "%+.1f %%", percent(plan.energy_j, other.energy_j));
        }
    }
    putc('\n', out);
    erg_print_table(out, &table, "");
}

static void print_numbers(FILE *out, const struct erg_verification *verification)
{
    size_t columns = 1 + verification->comparison_count;
    struct erg_table table = {.columns = columns + 1};
    erg_table_add(&table, "%s", "relative difference");
    for (size_t i = 0; i < verification->comparison_count; i++)
        erg_table_add(&table, "%s", verification->comparisons[i].way);
    erg_table_add(&table, "%s", "");
    erg_table_add(&table, "%s", "(equal bit by bit)");
    for (size_t i = 0; i < verification->comparison_count; i++)
        erg_table_add(&table, "to %s", verification->comparisons[i].reference);
    erg_table_add(&table, "%s", "");
    for (size_t t = 0; t < verification->comparisons[0].count; t++) {
        bool output = t == 0;
        erg_table_add(&table, "%s%s", output ? "" : "gradient of ",
                      verification->comparisons[0].tensors[t].tensor);
        for (size_t i = 0; i < verification->comparison_count; i++) {
            const struct erg_difference *seen = &verification->comparisons[i].tensors[t];
            erg_table_add(&table, "%.1e (%u of %u)", seen->relative, (unsigned)seen->identical,
                          (unsigned)seen->copies);
        }
        erg_table_add(&table, "%s", "");
    }
    putc('\n', out);
    erg_print_table(out, &table, "");
}

/* ---- as JSON ---- */

static json_t *partitions_json(const struct erg_verification *verification)
{
    json_t *partitions = json_array();
    for (size_t i = 0; i < verification->partition_count; i++) {
        const struct erg_verify_partition *partition = &verification->partitions[i];
        json_t *row =
            erg_json_pack("{s:s, s:s}", "direction", erg_direction_names[partition->backward],
                          "partition", partition->name);
        for (int way = 0; way < ERG_VERIFY_WAYS; way++)
            json_object_set_new(row, erg_verify_way_name((enum erg_verify_way)way),
                                erg_json_pack("{s:f, s:f}", "time_s", partition->costs[way].time_s,
                                              "energy_j", partition->costs[way].energy_j));
        json_array_append_new(partitions, row);
    }
    return partitions;
}

static json_t *shares_json(const struct erg_verification *verification)
{
    json_t *shares = json_array();
    for (int d = 0; d < 2; d++)
        json_array_append_new(
            shares, erg_json_pack("{s:s, s:I, s:I}", "direction", erg_direction_names[d],
                                  "instructions", (json_int_t)verification->shares[d].instructions,
                                  "verified", (json_int_t)verification->shares[d].uses));
    return shares;
}

static json_t *document(const struct erg_verification *verification, long layers)
{
    json_t *rows = json_array(), *comparisons = json_array();
    for (size_t i = 0; i < verification->row_count; i++) {
        const struct erg_verify_row *row = &verification->rows[i];
        json_array_append_new(
            rows, erg_json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
                                "direction", erg_direction_names[row->backward], "way",
                                erg_verify_way_name(row->way), "mode", erg_mode_name(row->mode),
                                "composed_time_s", row->composed.time_s, "time_s",
                                row->stack.time_s, "time_sd", row->profile.time_sd,
                                "composed_energy_j", row->composed.energy_j, "energy_j",
                                row->stack.energy_j, "energy_sd", row->profile.energy_sd,
                                "composed_clock_mhz", row->composed_mhz, "clock_mhz",
                                row->stack_mhz, "temperature_c", row->profile.temperature_end_c));
    }
    for (size_t i = 0; i < verification->comparison_count; i++) {
        const struct erg_verify_comparison *comparison = &verification->comparisons[i];
        json_t *tensors = json_array();
        for (size_t t = 0; t < comparison->count; t++) {
            const struct erg_difference *seen = &comparison->tensors[t];
            json_array_append_new(tensors, erg_json_pack("{s:s, s:f, s:i, s:i}", "tensor",
                                                         seen->tensor, "relative", seen->relative,
                                                         "copies", (int)seen->copies, "identical",
                                                         (int)seen->identical));
        }
        json_array_append_new(comparisons,
                              erg_json_pack("{s:s, s:s, s:o}", "way", comparison->way, "reference",
                                            comparison->reference, "tensors", tensors));
    }
    return erg_json_pack("{s:i, s:I, s:o, s:o, s:o, s:o}", "schema_version", 1, "layers",
                         (json_int_t)layers, "rows", rows, "plan_runs", shares_json(verification),
                         "partitions", partitions_json(verification), "numbers", comparisons);
}

void erg_verify_print(FILE *out, const struct erg_verify_request *request,
                      const struct erg_verification *verification, bool json)
{
    const struct erg_job *job = request->job;
    if (json) {
        erg_print_json(out, document(verification, request->layers));
        return;
    }
    fprintf(out, "%s: %d layers of %s, a microbatch of %ld x %ld tokens, on %s%s\n\n", job->name,
            request->layers, job->model->name, job->layout.microbatch, job->layout.sequence,
            request->device ? "" : "the emulated ",
            request->device ? request->device->identity : job->gpu->name);
    print_costs(out, verification);
    if (verification->partition_count)
        print_partitions(out, verification);
    if (verification->comparison_count)
        print_numbers(out, verification);
}
