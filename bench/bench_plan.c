/*
 * The search over layouts: GPT-3 175B on 1,024 GPUs, batch 1,024, on one core. For comparison:
 * Calculon (SC 2023) has 6,985,920 candidates there and evaluates about 290 a second.
 *
 * Calculon's options of the software (what overlaps, what is sharded) are constants of an engine
 * here, and it lists what is offloaded where here the least ratio that fits is computed; so our
 * space for one engine and one batch is smaller. To compare like with like, evaluations go on over
 * batches and budgets of memory until there are as many.
 *
 * Two ways: all splits, where for most layouts a bound on their time shows that they are none of
 * the ten kept, which counts as evaluated; and equal stages only, each with its memory, the ratio
 * of offloading and its time, whatever they are.
 */
#include "check.h"

#include "base/clock.h"
#include "layout/search/layout_search.h"

static const double calculon_candidates = 6985920, calculon_rate = 290;

static void count_one(void *context, const struct erg_layout_candidate *candidate)
{
    *(double *)context += candidate->tokens_per_s;
}

static void print_best(const struct erg_layout_results *found)
{
    printf("   t  c   p  v    d  b  recompute  offload   GiB   tokens/s\n");
    for (size_t i = 0; i < found->count; i++) {
        const struct erg_layout_candidate *at = &found->items[i];
        const struct erg_layout *layout = &at->layout;
        printf("%4ld %2ld %3ld %2ld %4ld %2ld  %-9s  %7.3f  %5.1f  %9.0f%s\n", layout->tensor,
               layout->context, layout->pipeline, layout->virtual_stages, layout->data,
               layout->microbatch, erg_recompute_name(layout->recompute), layout->offload,
               at->peak_bytes / 0x1p30, at->tokens_per_s,
               layout->chunk_layers ? "  unequal stages" : "");
    }
}

static int run(struct erg_error *err)
{
    struct erg_cluster *cluster;
    struct erg_gpu *gpu;
    struct erg_engine *engine;
    struct erg_model *model;
    struct erg_time_machine machine;
    struct erg_layout_results found;
    if (erg_cluster_load(&cluster, ERGON_TEST_SOURCE_DIR "/data/clusters/32x8-h800-sxm-80gb.yaml",
                         err) ||
        erg_gpu_load(&gpu, cluster->gpu, err) ||
        erg_engine_load(&engine, "megatron-kwai-h800", err) ||
        erg_model_load(&model, "gpt3-175b", err))
        return -1;
    erg_time_machine_init(&machine, gpu, cluster);
    struct erg_layout_search search = {
        .model = model,
        .kinds = {{.engine = engine, .machine = machine, .gpus = 1024, .memory_bytes = 0x1p36}},
        .kind_count = 1,
        .gpus = 1024,
        .sequence = 2048,
        .batch_least = 1024,
        .batch_most = 1024,
        .recomputes = ERG_RECOMPUTE_ALL,
        .offload = true,
        .top = 10,
    };
    double start = erg_cpu_seconds();
    if (erg_layout_search(&found, &search, err) != 0)
        return -1;
    double seconds = erg_cpu_seconds() - start;
    printf("whole space: %llu layouts (%llu slower than the ten kept, %llu too large) in %.1f ms\n",
           (unsigned long long)found.evaluated, (unsigned long long)found.slower,
           (unsigned long long)found.memory, 1e3 * seconds);
    print_best(&found);
    printf("no layout is more than %.2f %% faster than the first\n", 100 * found.gap);
    erg_layout_results_release(&found);

    for (int all = 0; all < 2; all++) {
        double evaluated = 0, checksum = 0, fit = 0, gaps = 0, gap = 0;
        long round = 0;
        start = erg_cpu_seconds();
        for (; evaluated < calculon_candidates; round++) {
            struct erg_layout_search other = search;
            other.batch_least = other.batch_most = 1024 + 256 * (round % 64);
            other.kinds[0].memory_bytes = 0x1p30 * (double)(48 + round / 64);
            other.each = all ? count_one : NULL;
            other.equal_stages = all;
            other.context = &checksum;
            if (erg_layout_search(&found, &other, err) != 0)
                return -1;
            evaluated += (double)found.evaluated;
            fit += (double)found.feasible;
            gaps += found.gap;
            gap = fmax(gap, found.gap);
            erg_layout_results_release(&found);
        }
        seconds = erg_cpu_seconds() - start;
        printf("%s: %.0f layouts in %.2f s (%ld searches, %.0f fit): %.2f million a second, %.0f "
               "times Calculon's %.0f\n",
               all ? "equal stages, memory and time of all"
                   : "all splits, bounded                 ",
               evaluated, seconds, round, fit, evaluated / seconds * 1e-6,
               evaluated / seconds / calculon_rate, calculon_rate);
        if (!all)
            printf("no layout is more than %.2f %% faster than the first on average, %.2f %% at "
                   "most\n",
                   100 * gaps / (double)round, 100 * gap);
    }
    erg_model_free(model);
    erg_engine_free(engine);
    erg_gpu_free(gpu);
    erg_cluster_free(cluster);
    return 0;
}

int main(void)
{
    struct erg_error err;
    if (run(&err) == 0)
        return 0;
    fprintf(stderr, "%s\n", err.message);
    return 1;
}
