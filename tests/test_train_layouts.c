/*
 * Training on many layouts, each rank a process with streams in random order: losses, norms, every
 * gradient and the weights after two steps are those of one rank, and what several ranks hold is
 * the same on all of them.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "train_layouts.h"

/* ---- the cases ---- */

static void all_layouts_train_alike(void **state)
{
    (void)state;
    static const struct layout_case cases[] = {
        /* model t c p v d m */
        {"llama", 2, 1, 1, 1, 1, 2, MASKED, NULL, NULL},
        {"llama", 4, 1, 1, 1, 1, 1, PLAIN, NULL,
         NULL}, /* two ranks have the same keys and values */
        {"llama", 4, 1, 2, 1, 2, 2, SP, NULL, NULL},
        {"llama", 1, 4, 1, 1, 1, 4, PLAIN, NULL, NULL},
        {"llama", 1, 1, 2, 1, 2, 4, MASKED, NULL, NULL},
        {"llama", 1, 1, 4, 2, 1, 4, PLAIN, NULL, NULL},
        {"llama", 1, 1, 4, 2, 1, 8, MASKED, NULL, NULL},
        {"llama", 1, 1, 2, 4, 2, 4, PLAIN, NULL, NULL},
        {"llama", 1, 1, 4, 1, 1, 8, PLAIN, "3, 1, 2, 2", NULL},
        {"llama", 1, 1, 2, 2, 2, 4, PLAIN, "3, 1, 2, 2", NULL},
        {"llama", 2, 2, 2, 2, 2, 4, MASKED, NULL, NULL},
        {"llama", 1, 1, 1, 1, 4, 2, MASKED, NULL, NULL},
        {"llama", 1, 2, 4, 1, 2, 4, PLAIN, NULL, NULL},
        {"llama", 2, 1, 2, 1, 1, 1, SP, NULL, NULL},
        {"qwen3", 2, 1, 1, 1, 4, 2, PLAIN, NULL, NULL},
        {"qwen3", 4, 1, 2, 2, 1, 2, MASKED, NULL, NULL},
        {"qwen3", 4, 2, 1, 1, 2, 4, SP, NULL, NULL},
        {"qwen3", 1, 2, 2, 1, 2, 8, PLAIN, NULL, NULL},
        {"qwen3", 1, 1, 4, 1, 4, 1, MASKED, NULL, NULL},
        {"qwen3", 2, 2, 2, 2, 1, 4, SP, NULL, NULL},
        {"qwen3", 8, 1, 2, 1, 1, 4, PLAIN, NULL, NULL},
        {"qwen2", 2, 1, 2, 1, 2, 2, SP, NULL, NULL},
        {"qwen2", 4, 1, 1, 1, 1, 4, PLAIN, NULL, NULL},
        {"qwen2", 1, 4, 2, 1, 1, 2, MASKED, NULL, NULL},
        {"qwen2", 1, 1, 2, 2, 4, 2, PLAIN, NULL, NULL},
        {"qwen2", 2, 2, 1, 1, 4, 1, PLAIN, NULL, NULL},
        {"qwen2", 1, 1, 4, 1, 1, 16, PLAIN, NULL, NULL},
        {"gpt2", 2, 1, 2, 1, 2, 4, MASKED, NULL, NULL},
        {"gpt2", 2, 2, 1, 1, 2, 2, SP, NULL, NULL},
        {"gpt2", 4, 1, 1, 1, 2, 8, SP, NULL, NULL},
        {"gpt2", 1, 2, 2, 2, 2, 4, PLAIN, NULL, NULL},
        {"gpt2", 1, 1, 4, 1, 2, 2, MASKED, NULL, NULL},
        {"gpt2", 4, 1, 2, 1, 2, 1, SP, NULL, NULL},
        {"gpt2", 1, 4, 1, 1, 4, 1, PLAIN, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(&cases[i], i + 1, false);
}

/* Messages are the stored elements, and each stage adds microbatches in one order: no bit differs,
 * but of a tied head's gradient, which is summed with the embedding's in another order. */
static void stages_change_no_bit(void **state)
{
    (void)state;
    static const struct layout_case cases[] = {
        {"qwen3", 1, 1, 2, 1, 1, 4, BF16, NULL, NULL},
        {"qwen3", 1, 1, 4, 1, 1, 8, MASKED, NULL, NULL},
        {"qwen2", 1, 1, 2, 2, 1, 2, MASKED | BF16, NULL, NULL},
        {"qwen2", 1, 1, 4, 1, 1, 2, BF16, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(&cases[i], i + 1, true);
}

/* Every instruction runs in the mode that a random plan has for it, the next one in another. */
static void plans_train_alike(void **state)
{
    (void)state;
    static const struct layout_case cases[] = {
        /* model t c p v d m */
        {"llama", 2, 1, 1, 1, 1, 2, MASKED | PLANNED, NULL, NULL},
        {"llama", 1, 2, 1, 1, 2, 2, PLANNED, NULL, NULL},
        {"llama", 2, 2, 2, 2, 1, 4, PLANNED | VALIDATES, NULL, NULL},
        {"llama", 2, 1, 2, 2, 2, 2, PLANNED, "3, 1, 2, 2", NULL},
        {"llama", 4, 1, 2, 1, 1, 4, PLANNED, NULL, NULL},
        {"qwen3", 2, 2, 1, 1, 1, 2, MASKED | PLANNED, NULL, NULL},
        {"qwen3", 1, 4, 2, 1, 1, 4, PLANNED, NULL, NULL},
        {"qwen2", 2, 2, 2, 1, 1, 2, PLANNED, NULL, NULL},
        {"gpt2", 2, 1, 2, 1, 1, 4, MASKED | PLANNED, NULL, NULL},
        {"gpt2", 1, 2, 2, 2, 1, 4, PLANNED, NULL, NULL},
        {"gpt2", 4, 2, 1, 1, 1, 2, PLANNED, NULL, NULL},
        {"llama", 1, 1, 2, 1, 2, 4, PLANNED, NULL, NULL}, /* nothing to overlap */
        {"llama", 2, 1, 1, 1, 1, 2, SP | MASKED | PLANNED, NULL, NULL},
        {"llama", 4, 1, 2, 1, 1, 4, SP | PLANNED | VALIDATES, NULL, NULL},
        {"llama", 2, 2, 2, 2, 1, 4, SP | PLANNED, NULL, NULL},
        {"llama", 2, 1, 2, 2, 2, 2, SP | PLANNED, "3, 1, 2, 2", NULL},
        {"qwen3", 2, 2, 1, 1, 1, 2, SP | MASKED | PLANNED, NULL, NULL},
        {"qwen3", 4, 1, 1, 1, 2, 4, SP | PLANNED, NULL, NULL},
        {"qwen2", 2, 2, 2, 1, 1, 2, SP | PLANNED, NULL, NULL},
        {"gpt2", 2, 1, 2, 1, 1, 4, SP | MASKED | PLANNED, NULL, NULL},
        {"gpt2", 4, 2, 1, 1, 1, 2, SP | PLANNED, NULL, NULL},
        {"gpt2", 2, 1, 1, 1, 1, 16, SP | PLANNED, NULL, NULL}, /* no halves */
        {"llama", 2, 1, 2, 1, 1, 4, PLANNED, NULL, "recompute: full"},
        {"qwen3", 2, 2, 1, 1, 1, 2, MASKED | PLANNED, NULL, "recompute: full"},
        {"gpt2", 1, 2, 2, 2, 1, 4, PLANNED, NULL, "recompute: full"},
        {"llama", 2, 1, 1, 1, 1, 2, SP | PLANNED, NULL, "recompute: balanced"},
        {"qwen3", 4, 1, 2, 1, 1, 4, SP | PLANNED, NULL, "recompute: norms"},
    };
    plan_of_case.modes = RANDOM_PLAN_ALL;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plan_of_case.seed = i + 1;
        check_case(&cases[i], i + 1, false);
    }
}

/* No bit depends on where an exchange begins, on its SMs, and on the order of streams. */
static void slots_change_no_bit(void **state)
{
    (void)state;
    static const struct layout_case cases[] = {
        {"llama", 2, 2, 1, 1, 1, 2, PLANNED, NULL, NULL},
        {"qwen3", 2, 1, 2, 1, 1, 2, PLANNED | BF16, NULL, NULL},
        {"llama", 2, 2, 1, 1, 1, 2, SP | PLANNED, NULL, NULL},
        {"gpt2", 4, 1, 2, 1, 1, 2, SP | PLANNED | BF16, NULL, NULL},
        {"llama", 2, 1, 1, 1, 2, 1, SP | PLANNED, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome *first = outcome_new();
        struct erg_job *job = load_job(&cases[i]);
        list_places(job->model);
        erg_job_free(job);
        plan_of_case.modes = 1u << ERG_MODE_NANOBATCH;
        run_case(&cases[i], 0, first);
        plan_of_case.modes = 1u << ERG_MODE_OVERLAP;
        for (uint64_t seed = 1; seed <= 20; seed++) {
            char name[160];
            struct outcome *outcome = outcome_new();
            say_case(name, sizeof name, &cases[i], seed);
            plan_of_case.seed = seed;
            run_case(&cases[i], seed, outcome);
            compare(outcome, first, true, name);
            outcome_release(outcome);
        }
        outcome_release(first);
    }
}

/* Whatever order the streams of each rank take. */
static void any_order_of_streams_will_do(void **state)
{
    (void)state;
    static const struct layout_case cases[] = {
        {"llama", 1, 1, 2, 2, 2, 4, PLAIN, NULL, NULL},
        {"qwen3", 2, 1, 2, 1, 2, 4, SP, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct outcome *first = outcome_new();
        struct erg_job *job = load_job(&cases[i]);
        list_places(job->model);
        erg_job_free(job);
        run_case(&cases[i], 0, first);
        for (uint64_t seed = 1; seed <= 20; seed++) {
            char name[160];
            struct outcome *outcome = outcome_new();
            say_case(name, sizeof name, &cases[i], seed);
            run_case(&cases[i], seed, outcome);
            compare(outcome, first, true, name);
            outcome_release(outcome);
        }
        outcome_release(first);
    }
}

/* The loss on other data is that of one rank, and training does not notice that it was found. */
static void validation_is_of_no_layout(void **state)
{
    (void)state;
    static const struct layout_case cases[] = {
        {"llama", 1, 1, 1, 1, 1, 2, VALIDATES, NULL, NULL},
        {"llama", 4, 1, 1, 1, 2, 2, VALIDATES | SP, NULL, NULL},
        {"llama", 1, 4, 1, 1, 2, 4, VALIDATES | MASKED, NULL, NULL},
        {"llama", 1, 1, 2, 1, 2, 1, VALIDATES, NULL, NULL}, /* room for one input */
        {"llama", 1, 1, 4, 2, 1, 8, VALIDATES | MASKED, NULL, NULL},
        {"llama", 2, 2, 2, 2, 2, 4, VALIDATES, NULL, NULL},
        {"qwen3", 1, 1, 4, 1, 1, 8, VALIDATES, NULL, NULL},
        {"gpt2", 1, 2, 2, 2, 2, 4, VALIDATES | MASKED, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[160];
        const struct layout_case *c = &cases[i];
        struct layout_case without = *c, alone = *c;
        struct outcome *outcome = outcome_new(), *other = outcome_new(), *one = outcome_new();
        say_case(name, sizeof name, c, i + 1);
        without.flags &= ~VALIDATES;
        alone.tensor = alone.context = alone.pipeline = alone.virtual_stages = alone.data = 1;
        alone.flags &= ~SP;
        struct erg_job *job = load_job(&alone);
        list_places(job->model);
        erg_job_free(job);
        run_case(c, i + 1, outcome);
        run_case(&without, i + 1, other);
        run_case(&alone, 0, one);
        compare(outcome, other, true, name);
        for (int s = 0; s < STEPS; s++) {
            assert_true(one->validation[s] > 1 && one->validation[s] != one->steps[s].loss);
            if (!(fabs(outcome->validation[s] - one->validation[s]) <= 5e-6))
                fail_msg("%s, step %d: validation loss %.9g, of one rank %.9g", name, s + 1,
                         outcome->validation[s], one->validation[s]);
        }
        assert_true(one->validation[0] != one->validation[1]);
        outcome_release(outcome);
        outcome_release(other);
        outcome_release(one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_layouts_train_alike),
        cmocka_unit_test(stages_change_no_bit),
        cmocka_unit_test(plans_train_alike),
        cmocka_unit_test(slots_change_no_bit),
        cmocka_unit_test(validation_is_of_no_layout),
        cmocka_unit_test(any_order_of_streams_will_do),
    };
    return cmocka_run_group_tests(tests, make_tokens, remove_folder);
}
