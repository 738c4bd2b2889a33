/* The market for GPUs: small cases with known optima, and random ones against exhaustive search. */
#include "base/random.h"
#include "check.h"
#include "cluster/policies/market.h"

static void offer(struct erg_market *market, int type, int gpus, double value)
{
    erg_market_offer(market, &(struct erg_offer){type, gpus, value});
}

/* The value of what a bidder got; 0: nothing. */
static double got(const struct erg_market *market, size_t bidder)
{
    long given = market->bidders.items[bidder].given;
    return given < 0 ? 0 : market->offers.items[given].value;
}

/* Two jobs, two types of 4 GPUs: the first is 3 times as fast on the first type, the second hardly
 * faster. Both would take it. */
static void test_comparative_advantage(void **state)
{
    (void)state;
    struct erg_market market;
    erg_market_init(&market, 2);
    market.supply[0] = market.supply[1] = 4;
    for (int order = 0; order < 2; order++) {
        erg_market_reset(&market);
        for (int i = 0; i < 2; i++) {
            erg_market_bid(&market);
            offer(&market, 0, 4, i == order ? 9 : 11);
            offer(&market, 1, 4, i == order ? 3 : 10);
        }
        erg_market_clear(&market);
        assert_near(got(&market, (size_t)order), 9, 0);
        assert_near(got(&market, (size_t)!order), 10, 0);
        assert_near(erg_market_value(&market), 19, 0);
        assert_int_equal(market.left[0] + market.left[1], 0);
        /* The price difference lies between what the two lose: 1/4 and 6/4 a GPU. */
        assert_true(market.prices[0] - market.prices[1] >= 0.25);
        assert_true(market.prices[0] - market.prices[1] <= 1.5);
    }
    erg_market_release(&market);
}

/* One type of 8 GPUs, three jobs of values 10, 16, 20, 22 on 1, 2, 4, 8 GPUs: 4, 2 and 2. */
static void test_equal_jobs_share(void **state)
{
    (void)state;
    struct erg_market market;
    erg_market_init(&market, 1);
    market.supply[0] = 8;
    for (int i = 0; i < 3; i++) {
        erg_market_bid(&market);
        offer(&market, 0, 1, 10);
        offer(&market, 0, 2, 16);
        offer(&market, 0, 4, 20);
        offer(&market, 0, 8, 22);
    }
    erg_market_clear(&market);
    assert_near(erg_market_value(&market), 52, 0);
    assert_int_equal(market.left[0], 0);
    erg_market_release(&market);
}

/* Offers without value are never given, and more GPUs than anybody wants are left. */
static void test_no_job_is_forced(void **state)
{
    (void)state;
    struct erg_market market;
    erg_market_init(&market, 1);
    market.supply[0] = 8;
    erg_market_bid(&market);
    offer(&market, 0, 2, -1);
    erg_market_bid(&market);
    offer(&market, 0, 4, 5);
    offer(&market, 0, 8, 4);
    erg_market_bid(&market);
    erg_market_clear(&market);
    assert_int_equal(market.bidders.items[0].given, -1);
    assert_near(got(&market, 1), 5, 0);
    assert_int_equal(market.bidders.items[2].given, -1);
    assert_int_equal(market.left[0], 4);
    erg_market_release(&market);
}

static double best_value(const struct erg_market *market, size_t bidder, int *left)
{
    if (bidder == market->bidders.count)
        return 0;
    const struct erg_bidder *offers = &market->bidders.items[bidder];
    double best = best_value(market, bidder + 1, left);
    for (size_t o = offers->first; o < offers->end; o++) {
        const struct erg_offer *offer = &market->offers.items[o];
        if (offer->gpus > left[offer->type] || offer->value <= 0)
            continue;
        left[offer->type] -= offer->gpus;
        best = fmax(best, offer->value + best_value(market, bidder + 1, left));
        left[offer->type] += offer->gpus;
    }
    return best;
}

/* 3 types, 7 bidders, speeds that grow less than the GPUs. Few bidders are the worst case. */
static void test_against_exhaustive_search(void **state)
{
    (void)state;
    struct erg_market market;
    struct erg_rng rng;
    double sum = 0, worst = 1;
    enum { CASES = 60 };
    erg_rng_seed(&rng, 11);
    erg_market_init(&market, 3);
    for (int round = 0; round < CASES; round++) {
        int left[3], used[3] = {0};
        erg_market_reset(&market);
        for (int type = 0; type < 3; type++)
            left[type] = market.supply[type] = 1 + (int)erg_rng_below(&rng, 12);
        for (int i = 0; i < 7; i++) {
            double weight = 1 + 9 * erg_rng_uniform(&rng);
            double power = 0.3 + 0.7 * erg_rng_uniform(&rng);
            erg_market_bid(&market);
            for (int type = 0; type < 3; type++) {
                double speed = 0.2 + erg_rng_uniform(&rng);
                for (int gpus = 1; gpus <= 8; gpus *= 2)
                    if (erg_rng_uniform(&rng) < 0.7)
                        offer(&market, type, gpus, weight * speed * pow(gpus, power));
            }
        }
        erg_market_clear(&market);
        double value = erg_market_value(&market), best = best_value(&market, 0, left);
        for (size_t i = 0; i < market.bidders.count; i++)
            if (market.bidders.items[i].given >= 0) {
                const struct erg_offer *own = &market.offers.items[market.bidders.items[i].given];
                used[own->type] += own->gpus;
            }
        for (int type = 0; type < 3; type++)
            assert_int_equal(used[type] + market.left[type], market.supply[type]);
        assert_true(value <= best * (1 + 1e-12));
        assert_true(best <= erg_market_bound(&market) * (1 + 1e-12));
        sum += value / best;
        worst = fmin(worst, value / best);
    }
    if (sum / CASES < 0.96 || worst < 0.8)
        fail_msg("%.4f of the optimum on average, %.4f at worst", sum / CASES, worst);
    erg_market_release(&market);
}

/* With many bidders hardly anything is lost; the bound says so. */
static void test_many_bidders(void **state)
{
    (void)state;
    struct erg_market market;
    struct erg_rng rng;
    erg_rng_seed(&rng, 12);
    erg_market_init(&market, 4);
    for (int type = 0; type < 4; type++)
        market.supply[type] = 320;
    for (int i = 0; i < 600; i++) {
        double weight = exp(2 * erg_rng_normal(&rng));
        erg_market_bid(&market);
        for (int type = 0; type < 4; type++) {
            double speed = (4 - type) * (0.5 + erg_rng_uniform(&rng));
            for (int gpus = 1; gpus <= 16; gpus *= 2)
                offer(&market, type, gpus, weight * speed * pow(gpus, 0.8));
        }
    }
    erg_market_clear(&market);
    assert_true(erg_market_value(&market) > 0.999 * erg_market_bound(&market));
    erg_market_release(&market);
}

/* The same offers in another order, with some that are never best, lead to the same prices. */
static void test_order_of_offers(void **state)
{
    (void)state;
    struct erg_market markets[2];
    enum { BIDDERS = 100, TYPES = 3, OFFERS = 3 * TYPES };
    for (int m = 0; m < 2; m++) {
        struct erg_rng rng;
        erg_rng_seed(&rng, 13);
        erg_market_init(&markets[m], TYPES);
        for (int type = 0; type < TYPES; type++)
            markets[m].supply[type] = 64;
        for (int i = 0; i < BIDDERS; i++) {
            struct erg_offer offers[OFFERS];
            double weight = exp(erg_rng_normal(&rng));
            for (int o = 0; o < OFFERS; o++) { /* of 1, 3 and 8 GPUs; those of 3 are no good */
                int gpus = o % 3 == 0 ? 1 : o % 3 == 1 ? 3 : 8;
                double value = weight * (0.5 + erg_rng_uniform(&rng)) * pow(gpus, 0.7);
                offers[o] = (struct erg_offer){o / 3, gpus, gpus == 3 ? 0.1 * value : value};
            }
            erg_market_bid(&markets[m]);
            for (int o = 0; o < OFFERS; o++)
                erg_market_offer(&markets[m], &offers[m ? (o * 4 + i) % OFFERS : o]);
        }
        erg_market_clear(&markets[m]);
    }
    for (int type = 0; type < TYPES; type++) {
        assert_near(markets[1].prices[type], markets[0].prices[type], 0);
        assert_int_equal(markets[1].left[type], markets[0].left[type]);
    }
    for (size_t i = 0; i < BIDDERS; i++)
        assert_near(got(&markets[1], i), got(&markets[0], i), 0);
    erg_market_release(&markets[0]);
    erg_market_release(&markets[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comparative_advantage),
        cmocka_unit_test(test_equal_jobs_share),
        cmocka_unit_test(test_no_job_is_forced),
        cmocka_unit_test(test_against_exhaustive_search),
        cmocka_unit_test(test_many_bidders),
        cmocka_unit_test(test_order_of_offers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
