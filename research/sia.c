/*
 * Sia as in Arena's published comparison.
 *
 * A configuration is a type and 1, 2, 4, 8 or 16 GPUs; a table says which one each admitted job
 * has. For a new job, and for each that waits whenever jobs ended, the table is solved for anew:
 * the most goodness of all jobs in it, at most three of them on other configurations than before,
 * and 1000 more if the new job gets one, too. What a job can do on n GPUs of a type is n times what
 * it does on one, whatever profiles say beyond whether it runs there as a data parallel job; where
 * one GPU is too small, one does the share of its largest number of GPUs, and half of that by a
 * slip. Its goodness is that over its least, times the GPUs of its least, times what restarts have
 * left of its time (at least 0.01), and of that the square root.
 *
 * Then jobs whose type changed and the new one are placed, the former with as many GPUs as the
 * table before said. Where only the number changed nothing happens but in the table. Where one
 * finds no room all stay where they were, the new job waits, and the table is kept. Jobs that just
 * came need no room for a replica on each GPU, jobs that waited do.
 *
 * The artifact leaves the program to a solver, which stops within 1e-4 of the best: about 0.1,
 * since admission counts so much, and more than most changes gain. Here tables with one change more
 * are tried until the best found is within that of a bound by prices of GPUs (Lagrangian); of
 * equally good ones that in which the oldest jobs have the first configurations is taken. Golden
 * rounds agree to the 168th (the best tables of all would to the 422nd), and sums over all within 3
 * %.
 */
#include "artifact.h"
#include "policies.h"
#include "tables.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RESTART_S 600.0
#define RESTART_LEAST 0.01
#define GOODNESS_MOST 3000.0
#define ADMISSION 1000.0
#define GAP 1e-4
#define EQUAL 1e-9

static const int counts[] = {1, 2, 4, 8, 16};
enum { COUNTS = sizeof counts / sizeof *counts };

struct replay_sia {
    int types, configurations; /* a configuration: type x COUNTS + index in `counts` */
    size_t workloads;
    double **menus; /* by workload: goodness by configuration, before restarts; 0: cannot run */
    struct replay_table table;
    struct {
        int *items;
        size_t count, capacity;
    } pending;
    struct replay_moves moves; /* bounded by their gain less what their GPUs cost at the prices */
    int *alike;                /* [from][to]: moves that were listed */
    int *left;                 /* by type: GPUs that the table leaves */
    double *prices;            /* by type: of a GPU, by which the search is bounded */
    double *goods;             /* of the new job, by configuration; 0: cannot run */
};

static void *open_sia(const struct erg_scheduler *scheduler, const void *rules)
{
    (void)rules;
    struct replay_sia *replay = erg_xcalloc(1, sizeof *replay);
    size_t types = scheduler->fleet->types_count, configurations = types * COUNTS;
    replay->types = (int)types;
    replay->configurations = (int)configurations;
    replay->menus = erg_xcalloc(scheduler->trace->workloads_count, sizeof *replay->menus);
    replay->alike = erg_xcalloc(configurations * configurations, sizeof *replay->alike);
    replay->left = erg_xcalloc(types, sizeof *replay->left);
    replay->prices = erg_xcalloc(types, sizeof *replay->prices);
    replay->goods = erg_xcalloc(configurations, sizeof *replay->goods);
    replay->workloads = scheduler->trace->workloads_count;
    return replay;
}

static void close_sia(void *state)
{
    struct replay_sia *replay = state;
    for (size_t i = 0; i < replay->workloads; i++)
        free(replay->menus[i]);
    free(replay->menus);
    free(replay->table.items);
    free(replay->pending.items);
    free(replay->moves.items);
    free(replay->alike);
    free(replay->left);
    free(replay->prices);
    free(replay->goods);
    free(replay);
}

static int type_of(int configuration)
{
    return configuration / COUNTS;
}

static int gpus_of(int configuration)
{
    return counts[configuration % COUNTS];
}

static struct replay_gpus gpus_in(int configuration)
{
    return (struct replay_gpus){type_of(configuration), gpus_of(configuration)};
}

/* ---- what jobs can do ---- */

/* Samples per second on so many GPUs of a type as a data parallel job; 0: it cannot run so. */
static double speed_of(const struct erg_scheduler *scheduler, int job, int type, int gpus)
{
    int shape = erg_speeds_best(scheduler->speeds, type, gpus);
    if (shape < 0)
        return 0;
    const struct erg_speed *speed = erg_speed_at(artifact_of(scheduler)->data_parallel,
                                                 scheduler->jobs[job].request->workload, shape);
    return fmax(0, speed->samples_per_s);
}

/* What one GPU of a type is taken to do for a job. */
static double single(const struct erg_scheduler *scheduler, int job, int type)
{
    double share = speed_of(scheduler, job, type, 1);
    for (int i = 1; i < COUNTS && speed_of(scheduler, job, type, 1) == 0; i++) {
        double speed = speed_of(scheduler, job, type, counts[i]);
        if (speed > 0)
            share = speed / (2 * counts[i]);
    }
    return share;
}

static const double *menu_of(struct replay_sia *replay, const struct erg_scheduler *scheduler,
                             int job)
{
    double **menu = &replay->menus[scheduler->jobs[job].request->workload];
    if (*menu)
        return *menu;
    *menu = erg_xcalloc((size_t)replay->configurations, sizeof **menu);
    int least = -1;
    for (int c = 0; c < replay->configurations; c++) {
        if (speed_of(scheduler, job, type_of(c), gpus_of(c)) <= 0)
            continue;
        (*menu)[c] = gpus_of(c) * single(scheduler, job, type_of(c));
        if (least < 0 || (*menu)[c] < (*menu)[least])
            least = c;
    }
    double unit = least < 0 ? 1 : (*menu)[least] / gpus_of(least);
    for (int c = 0; c < replay->configurations; c++)
        (*menu)[c] /= unit;
    return *menu;
}

/* What restarts have left of a job's time. */
static double kept(const struct erg_scheduler *scheduler, int job)
{
    double executed_s = artifact_executed(&scheduler->works[job], scheduler->now_s);
    double restarts_s = scheduler->jobs[job].reconfigurations * RESTART_S;
    return fmax(RESTART_LEAST, (executed_s - restarts_s) / (executed_s + RESTART_S));
}

static double goodness(double value, double kept_share)
{
    return fmin(GOODNESS_MOST, sqrt(value * kept_share));
}

/* ---- the program ---- */

/* All changes of one job; of those alike in both configurations no more than three are ever wanted.
 */
static void list_moves(struct replay_sia *replay, const struct erg_scheduler *scheduler)
{
    size_t kept_count = 0, cells = (size_t)replay->configurations * (size_t)replay->configurations;
    replay->moves.count = 0;
    for (size_t i = 0; i < replay->table.count; i++) {
        const struct replay_row *row = &replay->table.items[i];
        const double *menu = menu_of(replay, scheduler, row->job);
        double share = kept(scheduler, row->job), now = goodness(menu[row->now], share);
        for (int c = 0; c < replay->configurations; c++)
            if (c != row->now && menu[c] > 0) {
                double gain = goodness(menu[c], share) - now;
                ERG_PUSH(
                    &replay->moves, items,
                    (struct replay_move){(int)i, c, gpus_in(row->now), gpus_in(c), gain, gain});
            }
    }
    replay_moves_sort(&replay->moves);
    memset(replay->alike, 0, cells * sizeof *replay->alike);
    for (size_t i = 0; i < replay->moves.count; i++) {
        const struct replay_move *move = &replay->moves.items[i];
        int from = replay->table.items[move->row].now;
        if (replay->alike[from * replay->configurations + move->to]++ < REPLAY_CHANGES_MOST)
            replay->moves.items[kept_count++] = *move;
    }
    replay->moves.count = kept_count;
}

static double reduced_gain(const struct replay_sia *replay, const struct replay_move *move)
{
    return move->gain + replay->prices[move->gives.type] * move->gives.count -
           replay->prices[move->takes.type] * move->takes.count;
}

/* What a new job adds with a configuration, less what its GPUs cost. */
static double reduced_entry(const struct replay_sia *replay, int c)
{
    return ADMISSION + replay->goods[c] - replay->prices[type_of(c)] * gpus_of(c);
}

/* The most that any table could add, by the prices (a Lagrangian bound). */
static double bound(const struct replay_sia *replay)
{
    double best[REPLAY_CHANGES_MOST] = {0}, entry = 0, sum = 0;
    for (size_t i = 0; i < replay->moves.count; i++) {
        double gain = reduced_gain(replay, &replay->moves.items[i]);
        for (int k = 0; k < REPLAY_CHANGES_MOST && gain > 0; k++)
            if (gain > best[k]) {
                double next = best[k];
                best[k] = gain;
                gain = next;
            }
    }
    for (int c = 0; c < replay->configurations; c++)
        if (replay->goods[c] > 0)
            entry = fmax(entry, reduced_entry(replay, c));
    for (int k = 0; k < REPLAY_CHANGES_MOST; k++)
        sum += best[k];
    for (int type = 0; type < replay->types; type++)
        sum += replay->prices[type] * replay->left[type];
    return sum + entry;
}

/* Lowers the bound type by type: it is convex in each price. */
static void find_prices(struct replay_sia *replay)
{
    enum { PASSES = 2, STEPS = 8 };
    double least = bound(replay);
    for (int pass = 0; pass < PASSES; pass++)
        for (int type = 0; type < replay->types; type++) {
            double *price = &replay->prices[type], step = *price > 0 ? *price / 2 : 0.1;
            for (int k = 0; k < STEPS; k++) {
                double at = *price, lower = fmax(0, at - step);
                *price = at + step;
                double up = bound(replay);
                *price = lower;
                double down = bound(replay);
                *price = up < least && up <= down ? at + step : down < least ? lower : at;
                if (*price == at)
                    step /= 2;
                least = fmin(least, fmin(up, down));
            }
        }
}

static void count_left(struct replay_sia *replay, const struct erg_scheduler *scheduler)
{
    for (int type = 0; type < replay->types; type++)
        replay->left[type] =
            scheduler->fleet->types[type].nodes * scheduler->fleet->types[type].gpus_per_node;
    for (size_t i = 0; i < replay->table.count; i++)
        replay->left[type_of(replay->table.items[i].now)] -= gpus_of(replay->table.items[i].now);
}

/* Of the table as it is; what solvers take shares of. */
static double value_of_table(struct replay_sia *replay, const struct erg_scheduler *scheduler)
{
    double sum = 1;
    for (size_t i = 0; i < replay->table.count; i++) {
        const struct replay_row *row = &replay->table.items[i];
        sum += goodness(menu_of(replay, scheduler, row->job)[row->now], kept(scheduler, row->job));
    }
    return sum;
}

/* All tables with no more changes than the search may have. `most`: what GPUs that are left cost.
 */
static void search_all(const struct replay_sia *replay, struct replay_search *search, double most)
{
    for (int c = 0; c < replay->configurations; c++)
        if (replay->goods[c] > 0) {
            search->entry = c;
            search->left[type_of(c)] -= gpus_of(c);
            replay_search_try(search, ADMISSION + replay->goods[c],
                              most + reduced_entry(replay, c));
            search->left[type_of(c)] += gpus_of(c);
        }
    search->entry = -1;
    replay_search_try(search, 0, most);
}

/* The best table with the new job, which can run on something. */
static void solve(struct replay_sia *replay, const struct erg_scheduler *scheduler,
                  struct replay_search *search)
{
    double most = 0;
    count_left(replay, scheduler);
    list_moves(replay, scheduler);
    find_prices(replay);
    for (size_t i = 0; i < replay->moves.count; i++)
        replay->moves.items[i].bound = reduced_gain(replay, &replay->moves.items[i]);
    replay_moves_sort(&replay->moves);
    for (int type = 0; type < replay->types; type++)
        most += replay->prices[type] * replay->left[type];
    double top = bound(replay), table = value_of_table(replay, scheduler);
    *search = (struct replay_search){
        .table = &replay->table,
        .moves = &replay->moves,
        .types = replay->types,
        .left = replay->left,
        .equal = EQUAL,
        .best_value = -INFINITY,
    };
    for (; search->most_count <= REPLAY_CHANGES_MOST; search->most_count++) {
        search_all(replay, search, most);
        if (search->best_value >= top - GAP * (table + search->best_value))
            return;
    }
}

/* What the new job can do now; false where it can run on nothing. */
static bool list_entries(struct replay_sia *replay, const struct erg_scheduler *scheduler, int job)
{
    const double *menu = menu_of(replay, scheduler, job);
    double share = kept(scheduler, job);
    bool runs = false;
    for (int c = 0; c < replay->configurations; c++) {
        replay->goods[c] = menu[c] > 0 ? goodness(menu[c], share) : 0;
        runs |= menu[c] > 0;
    }
    return runs;
}

/* ---- rounds ---- */

static int shape_of(const struct erg_scheduler *scheduler, int type, int gpus)
{
    return erg_speeds_best(scheduler->speeds, type, gpus);
}

static bool admit(struct replay_sia *replay, struct erg_scheduler *scheduler, int job,
                  const struct erg_speeds *speeds)
{
    struct replay_search search;
    struct replay_changed changed[REPLAY_CHANGES_MOST];
    struct replay_change changes[REPLAY_CHANGES_MOST];
    int count = 0;
    if (!list_entries(replay, scheduler, job))
        return false;
    solve(replay, scheduler, &search);
    if (search.best_entry < 0)
        return false;
    replay_table_change(&replay->table, &search, changed);
    for (int i = 0; i < search.best_count; i++) {
        const struct replay_row *row = &replay->table.items[changed[i].row];
        const int type = type_of(row->now), before = changed[i].before;
        if (type != type_of(before))
            changes[count++] =
                (struct replay_change){row->job, shape_of(scheduler, type, gpus_of(before))};
    }
    int entry = search.best_entry;
    const struct replay_change admitted = {job,
                                           shape_of(scheduler, type_of(entry), gpus_of(entry))};
    if (!replay_apply(scheduler, changes, count, &admitted, speeds))
        return false;
    ERG_PUSH(&replay->table, items, (struct replay_row){job, entry});
    return true;
}

static void admit_pending(struct replay_sia *replay, struct erg_scheduler *scheduler)
{
    size_t left = 0;
    for (size_t i = 0; i < replay->pending.count; i++)
        if (!admit(replay, scheduler, replay->pending.items[i],
                   artifact_of(scheduler)->data_parallel))
            replay->pending.items[left++] = replay->pending.items[i];
    replay->pending.count = left;
}

static int decide(void *state, struct erg_scheduler *scheduler, const struct erg_occasion *occasion,
                  struct erg_error *err)
{
    struct replay_sia *replay = state;
    (void)err;
    replay_table_forget_ended(&replay->table, scheduler);
    if (occasion->events & ERG_EVENT_END)
        admit_pending(replay, scheduler);
    for (size_t i = 0; i < occasion->arrived_count; i++)
        if (!admit(replay, scheduler, occasion->arrived[i], scheduler->speeds))
            ERG_PUSH(&replay->pending, items, occasion->arrived[i]);
    return 0;
}

const struct erg_policy artifact_sia = {
    .name = "sia",
    .summary = "Sia, as Arena's comparison has it",
    .events = ERG_EVENTS_OF_JOBS,
    .open = open_sia,
    .decide = decide,
    .close = close_sia,
};
