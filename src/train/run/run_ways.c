/* The ways to run a step in a plan. */
#include "train/run/run_ways.h"

#include "base/text.h"
#include "io/json.h"
#include "train/engine/pass_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char erg_run_ways_rule[] = "the best of the ways that the run has tried";

/* ---- list of ways ---- */

static const struct erg_plan_point *point_of(const struct erg_plan *plan,
                                             const struct erg_run_way *way)
{
    return &plan->methods[way->method].points[way->point];
}

/* Whether two points run every instruction in the same way. */
static bool are_alike(const struct erg_plan *plan, const struct erg_run_way *a,
                      const struct erg_run_way *b, bool clocks)
{
    for (size_t i = 0; i < plan->schedule.count; i++) {
        const struct erg_plan_option *x = erg_plan_option(plan, point_of(plan, a), i);
        const struct erg_plan_option *y = erg_plan_option(plan, point_of(plan, b), i);
        if (x != y &&
            (!erg_pass_options_are_alike(x, y) || (clocks && x->clock_mhz != y->clock_mhz)))
            return false;
    }
    return true;
}

/* Whether one is more promising than another: within the goal's bound by the plan, then by the
 * goal's quantity. */
static bool is_better(const struct erg_run_way *a, const struct erg_run_way *b,
                      const struct erg_goal *goal)
{
    const bool deadline = goal->deadline_s > 0, budget = goal->energy_j > 0;
    const bool a_keeps =
        (!deadline || a->time_s <= goal->deadline_s) && (!budget || a->energy_j <= goal->energy_j);
    const bool b_keeps =
        (!deadline || b->time_s <= goal->deadline_s) && (!budget || b->energy_j <= goal->energy_j);
    if (a_keeps != b_keeps)
        return a_keeps;
    /* Outside the bound, the nearer way is better. */
    const bool by_energy = deadline ? a_keeps : budget && !a_keeps;
    return by_energy ? a->energy_j < b->energy_j : a->time_s < b->time_s;
}

/* Inserts a way in order after the first one; drops the last one if the list is full. */
static void insert(struct erg_run_way *ways, size_t *count, const struct erg_run_way *way,
                   const struct erg_goal *goal)
{
    size_t at = *count;
    while (at > 1 && is_better(way, &ways[at - 1], goal))
        at--;
    if (at == ERG_TRIALS_WAYS)
        return;
    const size_t moved = (*count < ERG_TRIALS_WAYS ? *count : ERG_TRIALS_WAYS - 1) - at;
    memmove(&ways[at + 1], &ways[at], moved * sizeof *ways);
    ways[at] = *way;
    *count += *count < ERG_TRIALS_WAYS;
}

/* Adds a way. If two ways have equal launches, only the more promising one stays. */
static void add(struct erg_run_way *ways, size_t *count, const struct erg_plan *plan,
                const struct erg_run_way *way, bool clocks, const struct erg_goal *goal)
{
    for (size_t i = 0; i < *count; i++) {
        if (!are_alike(plan, &ways[i], way, clocks))
            continue;
        if (i == 0 || !is_better(way, &ways[i], goal))
            return;
        memmove(&ways[i], &ways[i + 1], (*count - i - 1) * sizeof *ways);
        --*count;
        break;
    }
    insert(ways, count, way, goal);
}

static struct erg_run_way way_of(const struct erg_plan *plan, size_t method, size_t point)
{
    const struct erg_plan_point *at = &plan->methods[method].points[point];
    return (struct erg_run_way){(enum erg_method)method, point, at->time_s, at->energy_j};
}

size_t erg_run_ways_list(struct erg_run_way ways[ERG_TRIALS_WAYS], const struct erg_plan *plan,
                         bool clocks, const struct erg_goal *goal)
{
    static const struct erg_goal fastest = {.objective = ERG_FASTEST};
    size_t count = 1;
    if (!clocks) /* then energies differ from the plan */
        goal = &fastest;
    ways[0] = way_of(plan, ERG_METHOD_SEQUENTIAL, 0);
    for (size_t method = 0; method < ERG_METHOD_COUNT; method++)
        for (size_t point = 0; point < plan->methods[method].point_count; point++) {
            const struct erg_run_way way = way_of(plan, method, point);
            add(ways, &count, plan, &way, clocks, goal);
        }
    return count;
}

size_t erg_run_ways_find(const struct erg_run_way *ways, size_t count, const struct erg_plan *plan,
                         bool clocks)
{
    const struct erg_run_way selected = way_of(plan, plan->selected.method, plan->selected.point);
    size_t i = 0;
    while (i < count && !are_alike(plan, &ways[i], &selected, clocks))
        i++;
    return i;
}

/* ---- names and results ---- */

void erg_run_way_name(struct erg_text *out, const struct erg_run_way *way,
                      const struct erg_plan *plan)
{
    erg_text_add(out, erg_method_name(way->method));
    if (plan->methods[way->method].point_count > 1)
        erg_text_printf(out, " point %zu", way->point + 1);
}

static json_t *name_of(const struct erg_run_way *way, const struct erg_plan *plan)
{
    struct erg_text name = {0};
    erg_run_way_name(&name, way, plan);
    json_t *value = erg_json_new_string(name.data);
    erg_text_release(&name);
    return value;
}

json_t *erg_run_ways_document(const struct erg_run_way *ways, const struct erg_trials *trials,
                              const struct erg_plan *plan)
{
    struct erg_trials_saved saved;
    json_t *rows = json_array();
    for (size_t i = 0; i < trials->options.ways; i++) {
        struct erg_trials_cost cost;
        erg_trials_cost(&cost, trials, i);
        const size_t rounds = trials->ways[i].count;
        json_array_append_new(
            rows,
            erg_json_pack("{s:o, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f}", "way",
                          name_of(&ways[i], plan), "method", erg_method_name(ways[i].method),
                          "point", (json_int_t)ways[i].point + 1, "rounds", (json_int_t)rounds,
                          "steps", (json_int_t)rounds * (json_int_t)trials->steps, "step_ms",
                          1e3 * cost.step_s, "step_ms_uncertainty", 1e3 * cost.step_s_half,
                          "step_j", cost.step_j, "step_j_uncertainty", cost.step_j_half));
    }
    erg_trials_saved(&saved, trials, trials->best);
    json_t *why = trials->why ? erg_json_new_string(trials->why) : json_null();
    return erg_json_pack("{s:o, s:o, s:o, s:b, s:I, s:I, s:f, s:f, s:{s:f, s:f, s:f, s:f}, s:o}",
                         "best", name_of(&ways[trials->best], plan), "reference",
                         name_of(&ways[0], plan), "changed", why, "unmet", trials->unmet, "series",
                         (json_int_t)trials->series, "rounds", (json_int_t)trials->rounds,
                         "spent_s", trials->spent_s, "budget_s", trials->budget_s, "saved", "time",
                         saved.time, "time_uncertainty", saved.time_half, "energy", saved.energy,
                         "energy_uncertainty", saved.energy_half, "ways", rows);
}

/* "12.3 ± 0.4 %"; a value without a significant digit is "-". */
static void add_share(struct erg_text *out, const json_t *saved, const char *key,
                      const char *uncertainty)
{
    const json_t *value = json_object_get(saved, key), *half = json_object_get(saved, uncertainty);
    if (!json_is_number(value) || !json_is_number(half))
        erg_text_add(out, "-");
    else
        erg_text_printf(out, "%.1f ± %.1f %%", 100 * json_number_value(value),
                        100 * json_number_value(half));
}

void erg_run_ways_say(struct erg_text *out, const json_t *document)
{
    const char *best = json_string_value(json_object_get(document, "best"));
    const char *reference = json_string_value(json_object_get(document, "reference"));
    const json_t *saved = json_object_get(document, "saved");
    const bool known = json_is_number(json_object_get(saved, "time_uncertainty"));
    const bool later = json_is_string(json_object_get(document, "changed"));
    size_t tried = 0;
    for (size_t i = 0; i < json_array_size(json_object_get(document, "ways")); i++)
        tried += json_integer_value(json_object_get(
                     json_array_get(json_object_get(document, "ways"), i), "rounds")) > 0;
    if (!best || !reference)
        return;
    if (tried == 0 || (later && !known)) { /* undisturbed, a later series has three rounds */
        erg_text_printf(
            out, "%s continues: other work disturbed the trials, which show no better way", best);
        return;
    }
    if (strcmp(best, reference) == 0) {
        erg_text_printf(out, "%s is the best of the %zu ways tried", best, tried);
        return;
    }
    if (!known) {
        erg_text_printf(
            out,
            "%s took least in the single round of %zu ways that the time allowed, which "
            "does not show its saving compared with %s execution",
            best, tried, reference);
        return;
    }
    erg_text_printf(out, "%s saves ", best);
    add_share(out, saved, "time", "time_uncertainty");
    erg_text_add(out, " of the time and ");
    add_share(out, saved, "energy", "energy_uncertainty");
    erg_text_printf(out, " of the energy of a step compared with %s execution, of %zu ways tried",
                    reference, tried);
}
