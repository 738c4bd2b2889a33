/*
 * Training by random plans on many layouts, each rank a process with streams in random order:
 * losses, gradients and weights are those of one rank without a plan, whatever mode each
 * instruction has.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "train_layouts.h"

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
        {"gpt2", 2, 1, 2, 1, 1, 2, SP | PLANNED | BF16, NULL, NULL},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_train_alike),
        cmocka_unit_test(slots_change_no_bit),
    };
    return cmocka_run_group_tests(tests, make_tokens, remove_folder);
}
