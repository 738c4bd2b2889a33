/* The number of GPUs to use: a line for each number. */
#include "io/print.h"
#include "report/text/layout_print.h"

#include "base/quantity.h"
#include "base/table.h"
#include "layout/energy/candidate.h"

#include <stdio.h>

/* The text after a number of GPUs. */
static void add_remark(struct erg_table *table, const struct erg_goal *query,
                       const struct erg_layout_count *count, double energy_j)
{
    const double time_s = count->fastest.time.total;
    const char *missed = erg_layout_missed_bound(query, time_s, energy_j);
    erg_table_add(table, "%s%s%s", count->on_frontier ? "on the frontier" : "",
                  count->on_frontier && missed ? ", " : "", missed ? missed : "");
}

/* A column for each kind of GPU. */
static size_t kind_columns(const struct erg_layout_answer *answer)
{
    return answer->searches->kind_count > 1 ? answer->searches->kind_count : 0;
}

static void add_numbers(struct erg_table *table, const struct erg_layout_answer *answer,
                        const struct erg_layout_candidate *candidate)
{
    erg_table_add(table, "%ld", erg_layout_gpus(&candidate->layout));
    for (size_t k = 0; k < kind_columns(answer); k++)
        erg_table_add(table, "%ld", erg_layout_gpus_of(candidate, k));
}

static void add_count(struct erg_table *table, const struct erg_layout_answer *answer,
                      const struct erg_layout_count *count)
{
    const struct erg_layout_candidate *candidate = &count->fastest;
    const double tokens = (double)candidate->batch * (double)candidate->layout.sequence;
    const double gpus = (double)erg_layout_gpus(&candidate->layout);
    const double time_s = candidate->time.total;
    struct erg_text name = {0};
    struct erg_layout_energy energy;
    erg_layout_candidate_energy(&energy, answer->searches, candidate);
    erg_layout_name(&name, &candidate->layout, answer->searches->model->layers);
    add_numbers(table, answer, candidate);
    erg_table_add(table, "%s", name.data);
    erg_table_add_number(table, 4, time_s);
    erg_table_add(table, "%.0f", tokens / time_s);
    erg_table_add(table, "%.1f %%",
                  100 * erg_layout_answer_mfu(answer, candidate, tokens / time_s));
    erg_table_add_number(table, 3, energy.total_j / tokens);
    erg_table_add(table, "%.0f", energy.gpu_power_w);
    erg_table_add_number(table, 4, gpus * time_s / 3600);
    add_remark(table, answer->query, count, energy.total_j);
    erg_text_release(&name);
}

/* A number of GPUs, of any kinds, for which no layout fits. */
static void add_unfit_count(struct erg_table *table, long gpus, size_t kinds)
{
    erg_table_add(table, "%ld", gpus);
    for (size_t k = 0; k < kinds; k++)
        erg_table_add(table, "%s", "");
    erg_table_add(table, "nothing fits");
    for (size_t i = 2 + kinds; i < table->columns; i++)
        erg_table_add(table, "%s", "");
}

/* The reason for the chosen number of GPUs. */
enum aim { FASTEST, LEAST_ENERGY, FEWEST_HOURS, AIMS };

static double aim_value(const struct erg_layout_pick *pick, enum aim aim)
{
    return aim == LEAST_ENERGY ? pick->energy_j
           : aim == FASTEST    ? pick->time_s
                               : (double)pick->gpus * pick->time_s;
}

/* The best point planned over clocks; false: none is within the limits. */
static bool pick_planned(struct erg_layout_pick *pick, const struct erg_layout_answer *answer,
                         size_t option, enum aim aim)
{
    struct erg_goal query = *answer->query;
    query.objective = aim == LEAST_ENERGY ? ERG_LEAST_ENERGY : ERG_FASTEST;
    return erg_layout_pick(pick, &answer->choice->options[option], 1, &query, NULL) == 0;
}

/* The fastest layout of a number of GPUs at the highest clock; false: none is within the limits. */
static bool pick_fastest(struct erg_layout_pick *pick, const struct erg_layout_answer *answer,
                         const struct erg_layout_count *count)
{
    struct erg_layout_energy energy;
    if (!count->fits)
        return false;
    erg_layout_candidate_energy(&energy, answer->searches, &count->fastest);
    *pick = (struct erg_layout_pick){.time_s = count->fastest.time.total,
                                     .energy_j = energy.total_j,
                                     .gpus = erg_layout_gpus(&count->fastest.layout)};
    return !erg_layout_missed_bound(answer->query, pick->time_s, pick->energy_j);
}

/* The number of GPUs that each goal alone asks for, within the limits. */
static void print_extremes(FILE *out, const struct erg_layout_answer *answer)
{
    static const char *const names[AIMS] = {"fastest", "least energy", "fewest GPU-hours"};
    const size_t planned = answer->choice->count;
    for (int aim = FASTEST; aim < AIMS; aim++) {
        const struct erg_layout_candidate *candidate = NULL;
        struct erg_layout_pick best = {0}, pick;
        struct erg_text kinds = {0};
        char energy[ERG_FORMAT_BYTES];
        for (size_t i = 0; i < planned + answer->search_count; i++) {
            bool any = i < planned ? pick_planned(&pick, answer, i, (enum aim)aim)
                                   : pick_fastest(&pick, answer, &answer->counts[i - planned]);
            if (!any ||
                (candidate && aim_value(&pick, (enum aim)aim) >= aim_value(&best, (enum aim)aim)))
                continue;
            best = pick;
            candidate = i < planned ? &answer->choice->layouts[i].candidate
                                    : &answer->counts[i - planned].fastest;
        }
        erg_layout_answer_gpus(&kinds, answer, candidate);
        fprintf(out, "%s: %ld GPUs%s%s%s, %.4g s, %s\n", names[aim], best.gpus,
                kinds.count ? " (" : "", kinds.count ? kinds.data : "", kinds.count ? ")" : "",
                best.time_s, erg_format_quantity(energy, best.energy_j, "J"));
        erg_text_release(&kinds);
    }
    putc('\n', out);
}

static void add_count_heads(struct erg_table *table, const struct erg_layout_answer *answer)
{
    static const char *const heads[] = {
        "the fastest layout", "time s", "tokens/s", "MFU", "J/token", "W a GPU", "GPU-hours", ""};
    const size_t count = sizeof heads / sizeof *heads;
    const size_t kinds = kind_columns(answer);
    table->columns = 1 + kinds + count;
    erg_table_add(table, "GPUs");
    for (size_t k = 0; k < kinds; k++)
        erg_table_add(table, "%s", answer->searches->kinds[k].name);
    for (size_t i = 0; i < count; i++)
        erg_table_add(table, "%s", heads[i]);
}

void erg_layout_print_counts(FILE *out, const struct erg_layout_answer *answer)
{
    struct erg_table table = {0};
    bool any = false; /* of the number of available GPUs */
    add_count_heads(&table, answer);
    for (size_t i = 0; i < answer->search_count; i++) {
        const long gpus = answer->searches[i].gpus;
        const bool last = i + 1 == answer->search_count || answer->searches[i + 1].gpus != gpus;
        any |= answer->counts[i].fits;
        if (answer->counts[i].fits)
            add_count(&table, answer, &answer->counts[i]);
        else if (last && !any)
            add_unfit_count(&table, gpus, kind_columns(answer));
        any &= !last;
    }
    erg_print_table(out, &table, "");
    putc('\n', out);
    print_extremes(out, answer);
}
