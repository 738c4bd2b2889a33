/*
 * Choices of a layout over clocks: the answers to a set of questions, how far from them a layout
 * that was not solved could be at most, and what they cost. The lines are to be compared between
 * two builds: an answer that another one costs more than 0.1 % on average, or 1 % once, is worse.
 *
 * Of the union of all frontiers the mean energy at deadlines 1.5 % apart is printed, from the
 * fastest layout's time to twice that.
 *
 * With the name of a job only that is asked about, with "all" all of them; "65B" and "175B" take
 * minutes and are left out otherwise.
 */
#include "check.h"

#include "base/clock.h"
#include "layout/energy/choice.h"

#include <math.h>

enum { MOST_NUMBERS = 4, QUESTIONS = 9 };

/* What is planned. */
struct job {
    const char *name, *model;
    long layers; /* 0: those of the model */
    long batch, sequence;
    long gpus[MOST_NUMBERS];
    double offload_rate; /* of host links; 0: nothing is offloaded */
    unsigned recomputes;
    bool mixed, takes_long;
};

static const struct job jobs[] = {
    {"small", "llama-2-7b", 4, 8, 4096, {4, 8}, 0, ERG_RECOMPUTE_ALL, false, false},
    {"7B", "llama-2-7b", 0, 256, 4096, {8, 16, 32, 64}, 0, ERG_RECOMPUTE_ALL, false, false},
    {"65B", "llama-65b", 0, 128, 4096, {64, 128}, 50e9, ERG_RECOMPUTE_ALL, false, true},
    {"175B", "gpt3-175b", 0, 512, 2048, {256}, 0, ERG_RECOMPUTE_ALL, false, true},
    {"mixed 7B", "llama-2-7b", 16, 32, 4096, {16}, 0, ERG_RECOMPUTE_ALL, true, false},
    {"mixed 65B", "llama-65b", 8, 64, 4096, {32}, 0, ERG_RECOMPUTE_ALL, true, false},
};

struct totals {
    double gap, most_gap, cpu_s;
    long questions;
};

/* The mean energy of the union of all that was solved. */
static double union_energy(const struct erg_layout_choice *choice)
{
    const double step = 1.015, beyond = 2;
    struct erg_frontier all = {0};
    double sum = 0;
    long count = 0;
    erg_layout_union(&all, choice->options, choice->count);
    for (double s = all.points[0].time_s * 1.0001; s < beyond * all.points[0].time_s; s *= step) {
        sum += log(all.points[erg_frontier_pick_deadline(&all, s)].energy_j);
        count++;
    }
    erg_frontier_release(&all);
    return exp(sum / (double)count);
}

static int ask(struct totals *totals, struct erg_layout_pick *best, const struct job *job,
               const char *question, struct erg_layout_choice_request *request,
               struct erg_error *err)
{
    struct erg_layout_choice choice;
    const double start_s = erg_cpu_seconds();
    int status = erg_layout_choose(&choice, request, err);
    const double cpu_s = erg_cpu_seconds() - start_s;
    if (status == 0) {
        *best = choice.picks[0];
        totals->gap += choice.gap;
        totals->most_gap = fmax(totals->most_gap, choice.gap);
        totals->questions++;
        printf("%-10s %-16s %10.6g  %6.3f %%", job->name, question,
               erg_layout_pick_value(best, request->query.objective), 100 * choice.gap);
        if (request->whole_union)
            printf("  %10.6g  %6.3f %%", union_energy(&choice), 100 * choice.union_gap);
        else
            printf("  %10s  %6s  ", "", "");
        printf("  %3zu of %6llu  %8.3f s\n", choice.count, (unsigned long long)choice.fitting,
               cpu_s);
    } else {
        printf("%-10s %-16s %s  %8.3f s\n", job->name, question, err->message, cpu_s);
    }
    fflush(stdout);
    totals->cpu_s += cpu_s;
    erg_layout_choice_release(&choice);
    return status != 0 && err->status != ERG_INFEASIBLE ? -1 : 0;
}

/* All questions about one job. */
static int ask_all(struct totals *totals, const struct job *job,
                   struct erg_layout_choice_request *request, struct erg_error *err)
{
    struct erg_layout_pick fastest = {0}, least = {0}, other;
    if (ask(totals, &fastest, job, "fastest", request, err) != 0)
        return -1;
    request->query = (struct erg_goal){.objective = ERG_LEAST_ENERGY};
    if (ask(totals, &least, job, "least energy", request, err) != 0)
        return -1;
    const struct {
        const char *name;
        struct erg_goal query;
        bool whole_union;
    } questions[QUESTIONS] = {
        {"within 1.02", {ERG_LEAST_ENERGY, .deadline_s = 1.02 * fastest.time_s}, false},
        {"within 1.1", {ERG_LEAST_ENERGY, .deadline_s = 1.1 * fastest.time_s}, false},
        {"within 1.3", {ERG_LEAST_ENERGY, .deadline_s = 1.3 * fastest.time_s}, false},
        {"half the saving", {.energy_j = 0.5 * (fastest.energy_j + least.energy_j)}, false},
        {"0.8 of the power", {.power_w = 0.8 * fastest.power_w}, false},
        {"0.6 of the power", {.power_w = 0.6 * fastest.power_w}, false},
        {"least power", {ERG_LEAST_POWER, .deadline_s = 1.3 * fastest.time_s}, false},
        {"0.9 of the time", {ERG_LEAST_ENERGY, .deadline_s = 0.9 * fastest.time_s}, false},
        {"union", {ERG_LEAST_ENERGY, .deadline_s = 1.1 * fastest.time_s}, true},
    };
    for (int i = 0; i < QUESTIONS; i++) {
        request->query = questions[i].query;
        request->whole_union = questions[i].whole_union;
        if (ask(totals, &other, job, questions[i].name, request, err) != 0)
            return -1;
    }
    return 0;
}

static int plan(struct totals *totals, const struct job *job, struct erg_error *err)
{
    struct erg_cluster *cluster;
    struct erg_gpu *gpus[2];
    struct erg_engine *engines[2];
    struct erg_model *model;
    struct erg_layout_kind kinds[2];
    struct erg_layout_search searches[MOST_NUMBERS];
    if (erg_cluster_load(&cluster, ERGON_TEST_SOURCE_DIR "/data/clusters/32x8-h800-sxm-80gb.yaml",
                         err) ||
        erg_model_load(&model, job->model, err))
        return -1;
    model->layers = job->layers ? job->layers : model->layers;
    for (int k = 0; k < 2; k++) {
        static const char *const names[] = {"h800-sxm-80gb", "a100-sxm4-40gb"};
        if (erg_gpu_load(&gpus[k], names[k], err) ||
            erg_engine_load(&engines[k], "megatron-kwai-h800", err))
            return -1;
        engines[k]->peak_flops = k ? 312e12 : engines[k]->peak_flops;
        engines[k]->host_link_bandwidth = job->offload_rate;
        kinds[k] = (struct erg_layout_kind){.name = names[k],
                                            .gpu = gpus[k],
                                            .engine = engines[k],
                                            .gpus = job->mixed ? job->gpus[0] / 2 : 1024,
                                            .memory_bytes = 0.9 * gpus[k]->memory_bytes};
        erg_time_machine_init(&kinds[k].machine, gpus[k], cluster);
    }
    struct erg_layout_choice_request request = {
        .searches = searches, .most = 24, .more = 24, .tolerance = 0.003};
    for (int i = 0; i < MOST_NUMBERS && job->gpus[i]; i++) {
        struct erg_layout_search *search = &searches[request.search_count++];
        *search = (struct erg_layout_search){.model = model,
                                             .kind_count = job->mixed ? 2 : 1,
                                             .gpus = job->mixed ? 0 : job->gpus[i],
                                             .sequence = job->sequence,
                                             .batch_least = job->batch,
                                             .batch_most = job->batch,
                                             .recomputes = job->recomputes,
                                             .offload = job->offload_rate > 0,
                                             .top = 64};
        for (size_t k = 0; k < search->kind_count; k++)
            search->kinds[k] = kinds[k];
    }
    int status = ask_all(totals, job, &request, err);
    for (int k = 0; k < 2; k++) {
        erg_engine_free(engines[k]);
        erg_gpu_free(gpus[k]);
    }
    erg_model_free(model);
    erg_cluster_free(cluster);
    return status;
}

int main(int argc, char **argv)
{
    struct totals totals = {0};
    struct erg_error err;
    printf("job        question              answer       gap  mean union       gap       solved   "
           "CPU time\n");
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        bool wanted = argc < 2 ? !jobs[i].takes_long
                               : !strcmp(argv[1], "all") || !strcmp(argv[1], jobs[i].name);
        if (!wanted)
            continue;
        if (plan(&totals, &jobs[i], &err) != 0) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
    }
    printf("gap: %.3f %% on average, %.3f %% at most; %.1f CPU s\n",
           100 * totals.gap / (double)totals.questions, 100 * totals.most_gap, totals.cpu_s);
    return 0;
}
