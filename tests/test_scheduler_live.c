/*
 * The scheduler as a live controller drives it: policies that are opened anew at any moment, jobs
 * that come one by one, GPUs of others, reports, and agreement with the simulator.
 */
#include "cluster/policies/policies.h"
#include "cluster/schedule/scheduler_internal.h"
#include "cluster/schedule/throttle.h"
#include "folder.h"
#include "live_driver.h"

/* ---- policies that are closed and opened anew ---- */

static double mean_jct(const struct erg_simulated *result)
{
    return result->summary.mean_time_in_system_s;
}

static void test_reopened(void **state)
{
    (void)state;
    for (int p = 0; erg_policies[p]; p++) {
        double worst = 0, sums[2] = {0};
        int same = 0, worlds = 0;
        for (unsigned seed = 0; seed < 12; seed++) {
            struct erg_rng rng;
            struct world world;
            struct erg_simulated kept, anew;
            erg_rng_seed(&rng, 100 + seed);
            make_random(&world, &rng);
            if (seed % 3 == 2)
                world.simulation.power_cap_w = 600;
            simulate(&kept, &world, erg_policies[p]->name);
            world.simulation.reopened_every = 1 + seed % 4;
            simulate(&anew, &world, erg_policies[p]->name);
            worlds++;
            same += mean_jct(&kept) == mean_jct(&anew);
            worst = fmax(worst, fabs(mean_jct(&anew) / mean_jct(&kept) - 1));
            sums[0] += mean_jct(&kept);
            sums[1] += mean_jct(&anew);
            assert_int_equal(kept.summary.finished_jobs, anew.summary.finished_jobs);
            erg_simulated_release(&kept);
            erg_simulated_release(&anew);
            erg_speeds_free(world.speeds);
        }
        print_message("%s: %d of %d the same, worst %.4f, all %.5f\n", erg_policies[p]->name, same,
                      worlds, worst, sums[1] / sums[0] - 1);
    }
}

static void test_as_simulated(void **state)
{
    (void)state;
    for (int p = 0; erg_policies[p]; p++) {
        double worst = 0, sums[2] = {0};
        int same = 0, all = 0;
        for (unsigned seed = 0; seed < 6; seed++) {
            struct erg_rng rng;
            struct world world;
            struct erg_simulated result;
            struct driver driver;
            erg_rng_seed(&rng, 200 + seed);
            make_random(&world, &rng);
            world.simulation.outages_count = 0;
            simulate(&result, &world, erg_policies[p]->name);
            make_driver(&driver, &world, erg_policies[p]->name);
            while (step(&driver, INFINITY))
                continue;
            for (size_t i = 0; i < world.trace.count; i++) {
                double simulated_s = result.jobs[i].ended_s, live_s = driver.jobs[i].ended_s;
                if (isnan(simulated_s) || !(live_s < INFINITY)) {
                    assert_true(isnan(simulated_s) && !(live_s < INFINITY));
                    continue;
                }
                all++;
                same += fabs(simulated_s - live_s) < 1e-3;
                sums[0] += simulated_s - result.jobs[i].submitted_s;
                sums[1] += live_s - result.jobs[i].submitted_s;
            }
            release_driver(&driver);
            erg_simulated_release(&result);
            erg_speeds_free(world.speeds);
        }
        worst = sums[1] / sums[0] - 1;
        print_message("%s: %d of %d ends the same, mean %.5f\n", erg_policies[p]->name, same, all,
                      worst);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reopened),
        cmocka_unit_test(test_as_simulated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
