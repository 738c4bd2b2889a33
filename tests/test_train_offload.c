/*
 * Training that makes activations again, or copies them to host memory, on many layouts: losses,
 * gradients and weights have the bits of training that keeps all of them, whatever order streams
 * take, and although what is free is filled with what is no number.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "train_layouts.h"

static const char *const modes[] = {"none", "norms", "activation", "balanced", "full"};
static const double ratios[] = {0, 0.3, 0.5, 1};
enum { MODES = 5, RATIOS = 4 };

/* The case with a mode and a ratio for all stages has the bits of `plain`. */
static void check_bits(const struct layout_case *c, const struct outcome *plain, const char *more,
                       uint64_t seed)
{
    char name[200];
    struct layout_case own = *c;
    struct outcome *outcome = outcome_new();
    own.more = more;
    say_case(name, 120, c, seed);
    snprintf(name + strlen(name), sizeof name - strlen(name), " %s", more);
    run_case(&own, seed, outcome);
    compare(outcome, plain, true, name);
    for (int i = 0; i < STEPS && c->flags & VALIDATES; i++)
        assert_true(outcome->validation[i] == plain->validation[i]);
    outcome_release(outcome);
}

static struct outcome *run_plain(const struct layout_case *c)
{
    struct outcome *plain = outcome_new();
    struct erg_job *job = load_job(c);
    list_places(job->model);
    erg_job_free(job);
    run_case(c, 0, plain);
    return plain;
}

static void every_mode_and_ratio_has_the_same_bits(void **state)
{
    (void)state;
    static const struct layout_case cases[] = {
        {"llama", 1, 1, 1, 1, 1, 2, VALIDATES, NULL, NULL},
        {"llama", 1, 1, 2, 1, 1, 4, BF16, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome *plain = run_plain(&cases[i]);
        for (int mode = 0; mode < MODES; mode++)
            for (int ratio = 0; ratio < RATIOS; ratio++) {
                char more[80];
                snprintf(more, sizeof more, "recompute: %s\noffload: %g", modes[mode],
                         ratios[ratio]);
                check_bits(&cases[i], plain, more, (uint64_t)(mode * RATIOS + ratio + 1));
            }
        outcome_release(plain);
    }
}

/* Of each of these layouts one mode with each ratio, another on each. */
static void so_it_is_on_every_layout(void **state)
{
    (void)state;
    static const struct layout_case cases[] = {
        {"llama", 2, 1, 1, 1, 1, 2, MASKED, NULL, NULL},
        {"llama", 1, 1, 2, 2, 2, 4, VALIDATES, NULL, NULL}, /* a tied head, interleaved */
        {"llama", 1, 1, 4, 1, 1, 8, VALIDATES, "3, 1, 2, 2", NULL},
        {"llama", 1, 2, 2, 1, 1, 4, VALIDATES, NULL, NULL},
        {"llama", 4, 1, 2, 1, 1, 2, SP | VALIDATES, NULL, NULL},
        {"llama", 1, 1, 2, 4, 1, 2, PLAIN, NULL, NULL}, /* all forward passes come first */
        {"qwen3", 2, 2, 1, 1, 1, 4, SP, NULL, NULL},
        {"qwen2", 2, 1, 2, 1, 1, 4, PLAIN, NULL, NULL},
        {"gpt2", 2, 1, 2, 1, 1, 4, SP | MASKED, NULL, NULL},
        {"gpt2", 1, 2, 2, 1, 1, 4, PLAIN, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome *plain = run_plain(&cases[i]);
        for (size_t k = 0; k < MODES; k++) {
            char more[80];
            snprintf(more, sizeof more, "recompute: %s\noffload: %g", modes[k],
                     ratios[(i + k) % RATIOS]);
            check_bits(&cases[i], plain, more, i * MODES + k + 1);
        }
        outcome_release(plain);
    }
}

/* Beside a plan whose options overlap nothing moves. */
static void so_it_is_by_a_plan(void **state)
{
    (void)state;
    static const struct layout_case cases[] = {
        {"llama", 2, 1, 2, 2, 1, 2, PLANNED | MASKED, "3, 1, 2, 2", NULL},
        {"qwen3", 2, 2, 1, 1, 1, 2, PLANNED | BF16, NULL, NULL},
        {"gpt2", 2, 1, 2, 1, 1, 4, PLANNED, NULL, NULL},
    };
    plan_of_case.modes = RANDOM_PLAN_ALL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plan_of_case.seed = i + 1;
        struct outcome *plain = run_plain(&cases[i]);
        check_bits(&cases[i], plain, "recompute: norms", i + 1);
        check_bits(&cases[i], plain, "recompute: activation", i + 2);
        check_bits(&cases[i], plain, "recompute: balanced", i + 3);
        plan_of_case.modes = 1u << ERG_MODE_SEQUENTIAL;
        outcome_release(plain);
        plain = run_plain(&cases[i]);
        check_bits(&cases[i], plain, "recompute: full\noffload: 1", i + 4);
        plan_of_case.modes = RANDOM_PLAN_ALL;
        outcome_release(plain);
    }
}

static void stages_may_differ(void **state)
{
    (void)state;
    static const struct layout_case cases[] = {
        {"llama", 1, 1, 4, 1, 1, 4, PLAIN, NULL, NULL},
        {"llama", 1, 1, 2, 2, 1, 4, VALIDATES, "3, 1, 2, 2", NULL},
    };
    static const char *const more[] = {
        "stage_recompute: [full, balanced, norms, none]\nstage_offload: [1, 0.5, 0, 0.3]",
        "stage_recompute: [activation, full]\nstage_offload: [0.7, 1]",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome *plain = run_plain(&cases[i]);
        check_bits(&cases[i], plain, more[i], i + 1);
        outcome_release(plain);
    }
}

static void any_order_of_copies_will_do(void **state)
{
    (void)state;
    static const struct layout_case cases[] = {
        {"llama", 1, 1, 1, 1, 1, 4, VALIDATES, NULL, NULL},
        {"llama", 1, 1, 2, 2, 1, 4, PLAIN, NULL, NULL},
        {"qwen3", 1, 1, 2, 1, 1, 4, PLAIN, NULL, NULL},
    };
    static const char *const more[] = {"offload: 1", "recompute: full\noffload: 1",
                                       "recompute: balanced\noffload: 0.5"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome *plain = run_plain(&cases[i]);
        for (uint64_t seed = 1; seed <= 20; seed++)
            check_bits(&cases[i], plain, more[i], seed);
        outcome_release(plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mode_and_ratio_has_the_same_bits),
        cmocka_unit_test(so_it_is_on_every_layout),
        cmocka_unit_test(so_it_is_by_a_plan),
        cmocka_unit_test(stages_may_differ),
        cmocka_unit_test(any_order_of_copies_will_do),
    };
    return cmocka_run_group_tests(tests, make_tokens, remove_folder);
}
