/* layout/memory: which bytes move, and the least of them with which a layout fits. */
#include "memory_world.h"

#include "base/random.h"
#include "layout/memory/memory_simulation.h"
#include "layout/memory/smallest_change.h"

/* The same budget of every stage, of 64 at most. */
static const double *all_stages(double bytes)
{
    static double budgets[64];
    for (int i = 0; i < 64; i++)
        budgets[i] = bytes;
    return budgets;
}

static const double GiB = 0x1p30;

/* ---- which bytes ---- */

/* Bytes of the pieces before `end` that stay, as long as they are not used: the first are used
 * last. */
static int64_t staying(const struct erg_memory_choice *choice, size_t end, const int64_t *moved)
{
    int64_t sum = 0;
    for (size_t k = 0; k < end; k++)
        sum += choice->pieces[k].bytes - moved[k];
    return sum;
}

/*
 * Against every set of whole pieces, and with each one more of which a part moves, so that as many
 * bytes move: at no moment of the backward pass less stays.
 */
static void check_against_all(const struct erg_memory_choice *choice)
{
    int64_t own[16], moved[16];
    for (size_t k = 0; k < choice->count; k++)
        own[k] = choice->pieces[k].moved;
    for (unsigned set = 0; set < 1u << choice->count; set++)
        for (size_t part = 0; part < choice->count; part++) {
            int64_t left = choice->moved;
            for (size_t k = 0; k < choice->count; k++) {
                moved[k] = set >> k & 1 ? choice->pieces[k].bytes : 0;
                left -= moved[k];
            }
            if (left < 0 || set >> part & 1 || left > choice->pieces[part].bytes)
                continue;
            moved[part] = left;
            for (size_t end = 1; end <= choice->count; end++)
                assert_true(staying(choice, end, own) <= staying(choice, end, moved));
        }
}

/*
 * The arena moves what was asked for, to a row; at most one tensor in part, and what is used last.
 * The framework moves at least that, to a MiB, in its order.
 */
static void choices(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-2-70b", 0);
    struct erg_memory_sizes sizes;
    struct erg_rng rng;
    erg_memory_sizes_of(
        &sizes, model,
        &(struct erg_layout){.tensor = 2, .context = 2, .microbatch = 1, .sequence = 8192});
    erg_rng_seed(&rng, 5);
    for (int i = 0; i < 200; i++) {
        enum erg_recompute recompute = (enum erg_recompute)(i % 4);
        const long layers = 1 + (i & 8) / 8;
        double offload = erg_rng_uniform(&rng);
        struct erg_memory_choice choice;
        erg_memory_choose(&choice, &sizes, recompute, layers, offload, ERG_MEMORY_ARENA);
        int64_t asked = (int64_t)ceil(offload * (double)choice.eligible), sum = 0, row = 1;
        int split = 0;
        for (size_t k = 0; k < choice.count; k++) {
            const struct erg_memory_piece *piece = &choice.pieces[k];
            assert_true(piece->moved >= 0 && piece->moved <= piece->bytes);
            sum += piece->moved;
            if (piece->moved && piece->moved < piece->bytes) {
                split++;
                row = piece->bytes / sizes.tensors[piece->tensor].rows;
                assert_int_equal(piece->moved % row, 0);
                assert_ptr_equal(choice.split, piece);
            }
        }
        assert_true(split <= 1 && (split == 1) == (choice.split != NULL));
        assert_int_equal(sum, choice.moved);
        assert_true(sum >= asked - 1 && (sum < asked + row || !split));
        if (choice.count <= 10)
            check_against_all(&choice);
        erg_memory_choice_release(&choice);
        erg_memory_choose(&choice, &sizes, recompute, layers, offload, ERG_MEMORY_FRAMEWORK);
        assert_true(choice.moved >= asked - 1 && choice.moved < asked + (1 << 20));
        erg_memory_choice_release(&choice);
    }
    erg_model_free(model);
}

/* ---- how many ---- */

static double worst_peak(const struct erg_memory_request *request, double *peaks)
{
    struct erg_error err;
    struct erg_memory_result result;
    assert_ok(erg_memory_simulate(&result, request, &err), &err);
    double peak = result.stages[result.worst].peak_bytes;
    for (long i = 0; i < result.count && peaks; i++)
        peaks[i] = result.stages[i].peak_bytes;
    erg_memory_result_release(&result);
    return peak;
}

/* A published row: its ratio, and that nothing less fits, for all and for each stage. */
static void the_least_that_fits(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-65b", 32005);
    const struct published row = {4096, 32, 272, 2, 1, 8, 2, ERG_RECOMPUTE_BALANCED, 0.544};
    struct erg_layout layout = layout_of(model, &row);
    struct erg_memory_request request = {.model = model, .layout = &layout};
    struct erg_memory_solution solution;
    struct erg_error err;
    double peaks[8];
    assert_ok(erg_memory_solve(&solution, &request, all_stages(64 * GiB), 0, &err), &err);
    assert_near(solution.offload, 0.544, 0.002);
    layout.offload = solution.offload;
    assert_true(worst_peak(&request, NULL) <= 64 * GiB);
    layout.offload = solution.offload - 0.0005;
    assert_true(worst_peak(&request, NULL) > 64 * GiB);
    layout.stage_offload = solution.stage_offload;
    layout.stage_recompute = solution.stage_recompute;
    worst_peak(&request, peaks);
    double sum = 0;
    for (int i = 0; i < 8; i++) {
        assert_true(peaks[i] <= 64 * GiB && peaks[i] > 63.99 * GiB);
        assert_true(solution.stage_offload[i] <= solution.offload);
        sum += solution.stage_offload[i] * (i == 7 ? 4 : 5) * 136;
    }
    assert_near(solution.stage_offload[0], solution.offload, 0);
    struct erg_memory_sizes sizes = sizes_of(model, &layout);
    double movable = 2 * (double)(sizes.kept[ERG_RECOMPUTE_BALANCED] - sizes.log_sum_exp);
    assert_close(solution.stage_offload_bytes, sum * movable, 1e-3);
    assert_close(solution.offload_bytes, solution.offload * 39 * 136 * movable, 1e-3);
    erg_memory_solution_release(&solution);
    erg_model_free(model);
}

/* Where nothing need be moved, a stage that can keep all recomputes nothing either. */
static void no_more_recomputation_than_needed(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-65b", 32005);
    const struct published row = {4096, 128, 256, 2, 1, 8, 2, ERG_RECOMPUTE_BALANCED, 0};
    struct erg_layout layout = layout_of(model, &row);
    struct erg_memory_request request = {.model = model, .layout = &layout};
    struct erg_memory_solution solution;
    struct erg_error err;
    assert_ok(erg_memory_solve(&solution, &request, all_stages(70 * GiB), 0, &err), &err);
    assert_near(solution.offload, 0, 0);
    assert_int_equal(solution.stage_recompute[0], ERG_RECOMPUTE_ACTIVATION);
    assert_int_equal(solution.stage_recompute[7], ERG_RECOMPUTE_NONE);
    layout.stage_offload = solution.stage_offload;
    layout.stage_recompute = solution.stage_recompute;
    assert_true(worst_peak(&request, NULL) <= 70 * GiB);
    erg_memory_solution_release(&solution);
    erg_model_free(model);
}

/* The framework's blocks need a little more offloading; what is found fits. */
static void framework(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-65b", 32005);
    const struct published row = {8192, 256, 256, 2, 2, 8, 2, ERG_RECOMPUTE_BALANCED, 0};
    struct erg_layout layout = layout_of(model, &row);
    struct erg_memory_request request = {.model = model, .layout = &layout};
    struct erg_memory_solution arena, blocks;
    struct erg_error err;
    assert_ok(erg_memory_solve(&arena, &request, all_stages(56e9), 0, &err), &err);
    request.accounting = ERG_MEMORY_FRAMEWORK;
    assert_ok(erg_memory_solve(&blocks, &request, all_stages(56e9), 0, &err), &err);
    assert_true(blocks.offload > arena.offload && blocks.offload < arena.offload + 0.05);
    layout.stage_offload = blocks.stage_offload;
    layout.stage_recompute = blocks.stage_recompute;
    assert_true(worst_peak(&request, NULL) <= 56e9);
    erg_memory_solution_release(&arena);
    erg_memory_solution_release(&blocks);
    erg_model_free(model);
}

/* What a node of 8 has for the stage that offloads most. */
static double node_bytes(const struct erg_memory_request *request)
{
    struct erg_error err;
    struct erg_memory_result result;
    double most = 0;
    assert_ok(erg_memory_simulate(&result, request, &err), &err);
    for (long i = 0; i < result.count; i++)
        most = fmax(most, result.stages[i].offload_bytes * (double)result.stages[i].groups);
    erg_memory_result_release(&result);
    return 8 * most;
}

static void helpful_changes_are_named(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-65b", 32005);
    const struct published row = {8192, 256, 256, 2, 2, 8, 2, ERG_RECOMPUTE_NONE, 0};
    struct erg_layout layout = layout_of(model, &row);
    struct erg_memory_request request = {.model = model, .layout = &layout};
    struct erg_memory_change change;
    struct erg_memory_solution solution;
    struct erg_error err;
    const struct {
        enum erg_recompute now;
        double budget;
        bool found;
        enum erg_recompute recompute;
        double offload, tolerance;
        long tensor;
    } cases[] = {
        {ERG_RECOMPUTE_NONE, 72e9, true, ERG_RECOMPUTE_ACTIVATION, 0, 0, 2},
        {ERG_RECOMPUTE_BALANCED, 58.9e9, true, ERG_RECOMPUTE_BALANCED, 0.2, 0.02, 2},
        {ERG_RECOMPUTE_NONE, 50e9, true, ERG_RECOMPUTE_NONE, 0.7, 0.02, 2},
        {ERG_RECOMPUTE_NONE, 33e9, true, ERG_RECOMPUTE_ACTIVATION, 0.99, 0.01, 2},
        {ERG_RECOMPUTE_FULL, 20e9, true, ERG_RECOMPUTE_FULL, 0, 0,
         4}, /* 28.2e9 B are weights and state */
        /* None; with these it needs the least, all of which is then enough. */
        {ERG_RECOMPUTE_NONE, 1e9, false, ERG_RECOMPUTE_FULL, 1, 0, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        layout.recompute = cases[i].now;
        const struct erg_memory_room room = {.gpu_bytes = cases[i].budget, .node_gpus = 8};
        const struct erg_memory_bounds bounds = {.rooms = &room, .degrees = true};
        assert_ok(erg_memory_smallest_change(&change, &request, &bounds, &err), &err);
        assert_int_equal(change.found, cases[i].found);
        assert_int_equal(change.layout.tensor, cases[i].tensor);
        assert_int_equal(change.layout.recompute, cases[i].recompute);
        assert_near(change.layout.offload, cases[i].offload, cases[i].tolerance);
    }
    assert_true(change.least_bytes > 1e9 && change.least_bytes < 33e9);
    request.layout = &change.layout;
    assert_close(worst_peak(&request, NULL), change.least_bytes, 0);
    request.layout = &layout;
    /* It fits the GPUs, and with less offloading the node, too: as much of it as the node takes,
     * whatever the GPUs need. */
    const struct {
        double gpu, host;
    } rooms[] = {{60e9, 60e9}, {72e9, 60e9}, {72e9, 0.1e9}};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        const struct erg_memory_room room = {
            .gpu_bytes = rooms[i].gpu, .host_bytes = rooms[i].host, .node_gpus = 8};
        const struct erg_memory_bounds bounds = {.rooms = &room, .degrees = true};
        layout.recompute = ERG_RECOMPUTE_BALANCED;
        layout.offload = 0.6;
        assert_ok(erg_memory_smallest_change(&change, &request, &bounds, &err), &err);
        assert_true(change.found && change.layout.recompute == ERG_RECOMPUTE_BALANCED);
        assert_false(signbit(change.layout.offload));
        layout.offload = change.layout.offload;
        assert_true(node_bytes(&request) <= room.host_bytes);
        layout.offload += 0.001;
        assert_true(node_bytes(&request) > room.host_bytes);
    }
    layout.recompute = ERG_RECOMPUTE_FULL;
    layout.offload = 0;
    assert_fails(erg_memory_solve(&solution, &request, all_stages(20e9), 0, &err), &err,
                 "more than the budget");
    assert_int_equal(err.status, ERG_INFEASIBLE);
    erg_memory_solution_release(&solution);
    erg_model_free(model);
}

/* Stages on GPUs of several kinds have budgets of their own: each moves what it alone must. */
static void budgets_of_stages(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-65b", 32005);
    const struct published row = {4096, 128, 256, 2, 1, 8, 2, ERG_RECOMPUTE_NONE, 0};
    struct erg_layout layout = layout_of(model, &row);
    struct erg_memory_request request = {.model = model, .layout = &layout};
    struct erg_memory_solution own, large, small;
    struct erg_error err;
    const double budgets[8] = {72e9, 72e9, 50e9, 50e9, 50e9, 72e9, 72e9, 72e9};
    assert_ok(erg_memory_solve(&own, &request, budgets, 0, &err), &err);
    assert_ok(erg_memory_solve(&large, &request, all_stages(72e9), 0, &err), &err);
    assert_ok(erg_memory_solve(&small, &request, all_stages(50e9), 0, &err), &err);
    for (int i = 0; i < 8; i++) {
        const struct erg_memory_solution *alone = budgets[i] < 60e9 ? &small : &large;
        assert_near(own.stage_offload[i], alone->stage_offload[i], 0);
    }
    /* Of stages that need more the smaller GPUs bind: the ratio of all is theirs. */
    assert_true(large.offload < own.offload && own.offload < small.offload);
    assert_near(own.offload, own.stage_offload[2], 0);
    layout.offload = own.offload;
    double peaks[8];
    worst_peak(&request, peaks);
    for (int i = 0; i < 8; i++)
        assert_true(peaks[i] <= budgets[i]);
    erg_memory_solution_release(&own);
    erg_memory_solution_release(&large);
    erg_memory_solution_release(&small);
    /* A budget may be missed by so much as was said. */
    layout.offload = 1;
    double least = worst_peak(&request, NULL);
    assert_fails(erg_memory_solve(&own, &request, all_stages(least / 1.003), 0, &err), &err,
                 "more than the budget");
    erg_memory_solution_release(&own);
    assert_ok(erg_memory_solve(&own, &request, all_stages(least / 1.003), 0.004, &err), &err);
    assert_close(own.excess_bytes, least - least / 1.003, 1e-9);
    erg_memory_solution_release(&own);
    erg_model_free(model);
}

enum { TRIED = 100 };

/* Some layout of few stages, any layers on each; false: the model has none like that. */
static bool draw_layout(struct erg_layout *layout, long *chunks, struct erg_model *model,
                        struct erg_rng *rng)
{
    struct erg_error err;
    *layout = (struct erg_layout){.tensor = 1 + (long)erg_rng_below(rng, 2),
                                  .context = 1 + (long)erg_rng_below(rng, 2),
                                  .pipeline = 3 + (long)erg_rng_below(rng, 5),
                                  .virtual_stages = 1 + (long)erg_rng_below(rng, 8) / 7,
                                  .data = 1,
                                  .microbatch = 1,
                                  .sequence = 2048 * (1 + (long)erg_rng_below(rng, 3)),
                                  .recompute = (enum erg_recompute)erg_rng_below(rng, 5),
                                  .chunk_layers = chunks};
    layout->microbatches = layout->pipeline * (1 + (long)erg_rng_below(rng, 2));
    model->layers = 0;
    for (long i = 0; i < layout->pipeline * layout->virtual_stages; i++)
        model->layers += chunks[i] = 1 + (long)erg_rng_below(rng, 2);
    return erg_layout_check(layout, model, &err) == 0;
}

/* The peaks of a stage with 0, 1, ..., TRIED hundredths offloaded. */
static void all_peaks(double *peaks, const struct erg_memory_request *request, long stage)
{
    struct erg_layout layout = *request->layout;
    struct erg_memory_request tried = *request;
    struct erg_memory_sizes sizes = sizes_of(request->model, &layout);
    tried.layout = &layout;
    for (int i = 0; i <= TRIED; i++) {
        layout.offload = (double)i / TRIED;
        peaks[i] = erg_memory_stage_peak(&tried, &sizes, stage, INFINITY);
    }
}

/* Of layouts at random, each stage with a budget of its own: no ratio of all those that were tried
 * is enough and less than what was found, for a stage and for all. */
static void against_all_ratios(void **state)
{
    (void)state;
    static double peaks[8][TRIED + 1];
    struct erg_model *model = load_model("llama-2-70b", 0);
    struct erg_rng rng;
    struct erg_error err;
    int found = 0, none = 0;
    erg_rng_seed(&rng, 3);
    for (int i = 0; i < 60; i++) {
        long chunks[16];
        double budgets[8];
        struct erg_layout layout;
        struct erg_memory_solution solution;
        if (!draw_layout(&layout, chunks, model, &rng))
            continue;
        const struct erg_memory_request request = {
            .model = model, .layout = &layout, .layer_copies = i % 2 == 0};
        for (long s = 0; s < layout.pipeline; s++) {
            double least = INFINITY, most = 0;
            all_peaks(peaks[s], &request, s);
            for (int k = 0; k <= TRIED; k++) {
                least = fmin(least, peaks[s][k]);
                most = fmax(most, peaks[s][k]);
            }
            budgets[s] = least + (most - least) * erg_rng_uniform(&rng);
        }
        assert_ok(erg_memory_solve(&solution, &request, budgets, 0, &err), &err);
        for (int k = 0; k <= TRIED; k++) {
            bool all = true;
            for (long s = 0; s < layout.pipeline; s++) {
                bool fits = peaks[s][k] <= budgets[s];
                all &= fits;
                if (fits && solution.stage_recompute[s] == layout.recompute)
                    assert_true(solution.stage_offload[s] <= (double)k / TRIED + 1e-5);
            }
            if (all)
                assert_true(solution.offload <= (double)k / TRIED + 1e-5);
        }
        if (isnan(solution.offload)) {
            none++;
        } else {
            double with[8];
            layout.offload = solution.offload;
            worst_peak(&request, with);
            for (long s = 0; s < layout.pipeline; s++)
                assert_true(with[s] <= budgets[s]);
            found++;
        }
        erg_memory_solution_release(&solution);
    }
    assert_true(found > 25 && none > 2);
    erg_model_free(model);
}

/* Layers of stages that are too large go where there is room, as few as are enough. */
static void moved_layers(void **state)
{
    (void)state;
    struct erg_model *model = load_model("llama-2-7b", 32005);
    struct erg_error err;
    long uneven[4] = {12, 8, 6, 6}, found[4];
    double peaks[4];
    struct erg_layout layout = {.tensor = 2,
                                .context = 1,
                                .pipeline = 4,
                                .data = 1,
                                .virtual_stages = 1,
                                .microbatch = 1,
                                .microbatches = 32,
                                .sequence = 4096,
                                .chunk_layers = uneven};
    struct erg_memory_request request = {.model = model, .layout = &layout};
    worst_peak(&request, peaks);
    double layer = (peaks[0] - peaks[1]) / 4; /* and more, for the first stage holds more */
    struct erg_memory_room rooms[4];
    bool fits;
    for (int i = 0; i < 4; i++)
        rooms[i] = (struct erg_memory_room){.gpu_bytes = peaks[0] - 1, .node_gpus = 8};
    /* A byte is missing: one layer, to the stage with the most room, and none has more than 12. */
    assert_ok(erg_memory_move_layers(found, &fits, &request, rooms, true, &err), &err);
    assert_true(fits);
    assert_int_equal(found[0], 11);
    assert_int_equal(found[0] + found[1] + found[2] + found[3], 32);
    assert_int_equal(found[3], 7);
    struct erg_memory_change change;
    const struct erg_memory_bounds bounds = {.rooms = rooms, .layers = true};
    assert_ok(erg_memory_smallest_change(&change, &request, &bounds, &err), &err);
    assert_true(change.found && change.chunk_layers);
    assert_memory_equal(change.chunk_layers, found, sizeof found);
    assert_int_equal(change.layout.recompute, ERG_RECOMPUTE_NONE);
    layout.chunk_layers = change.chunk_layers;
    worst_peak(&request, peaks);
    for (int i = 0; i < 4; i++)
        assert_true(peaks[i] <= rooms[i].gpu_bytes);
    erg_memory_change_release(&change);
    /* Of equal stages each with one layer more would be the longest, so recomputation is less of a
     * change. */
    layout.chunk_layers = NULL;
    worst_peak(&request, peaks);
    for (int i = 0; i < 4; i++)
        rooms[i].gpu_bytes = peaks[0] - layer / 8;
    assert_ok(erg_memory_move_layers(found, &fits, &request, rooms, true, &err), &err);
    assert_false(fits);
    assert_ok(erg_memory_smallest_change(&change, &request, &bounds, &err), &err);
    assert_true(change.found && !change.chunk_layers);
    assert_int_equal(change.layout.recompute, ERG_RECOMPUTE_NORMS);
    erg_memory_change_release(&change);
    /* But before whole layers are computed again, they move. */
    layout.recompute = ERG_RECOMPUTE_BALANCED;
    layout.offload = 1;
    worst_peak(&request, peaks);
    for (int i = 0; i < 4; i++)
        rooms[i].gpu_bytes = peaks[i] + 2 * layer;
    rooms[0].gpu_bytes = peaks[0] - layer / 8;
    assert_ok(erg_memory_smallest_change(&change, &request, &bounds, &err), &err);
    assert_true(change.found && change.chunk_layers && change.chunk_layers[0] == 7);
    erg_memory_change_release(&change);
    /* No stage has room. */
    for (int i = 0; i < 4; i++)
        rooms[i].gpu_bytes = peaks[3] / 2;
    assert_ok(erg_memory_move_layers(found, &fits, &request, rooms, false, &err), &err);
    assert_false(fits);
    erg_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices),
        cmocka_unit_test(the_least_that_fits),
        cmocka_unit_test(no_more_recomputation_than_needed),
        cmocka_unit_test(framework),
        cmocka_unit_test(helpful_changes_are_named),
        cmocka_unit_test(budgets_of_stages),
        cmocka_unit_test(against_all_ratios),
        cmocka_unit_test(moved_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
