/*
 * launch/peers: messages between ranks, which are processes of this test.
 */
#include "rank_world.h"

#include "launch/peers.h"

enum { WORLD = 4, BIG = 3000000 };

/* What a rank sends another one on a channel. */
static void fill(unsigned char *bytes, size_t count, int from, int to, uint32_t channel)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(i * 7 + (size_t)from * 31 + (size_t)to * 5 + channel);
}

static void await(struct erg_peers *peers, int rank, uint32_t channel)
{
    struct erg_error err;
    while (!erg_peers_has(peers, rank, channel))
        assert_ok(erg_peers_wait(peers, &err), &err);
}

/* More than sockets hold, before anybody takes anything: nobody waits for another. */
static void exchange(const struct erg_launch_environment *env, struct erg_rendezvous *rendezvous)
{
    struct erg_peers *peers;
    struct erg_error err;
    unsigned char *bytes = malloc(BIG), *expected = malloc(BIG);
    assert_ok(erg_peers_open(&peers, rendezvous, 60, &err), &err);
    for (uint32_t channel = 0; channel < 3; channel++)
        for (int to = 0; to < WORLD; to++) {
            if (to == env->rank)
                continue;
            fill(bytes, BIG, env->rank, to, channel);
            erg_peers_send(peers, to, channel, bytes, BIG - channel);
            erg_peers_send(peers, to, channel, "", 0);
        }
    for (uint32_t channel = 3; channel-- > 0;) /* another order than they were sent in */
        for (int from = 0; from < WORLD; from++) {
            if (from == env->rank)
                continue;
            size_t count;
            await(peers, from, channel);
            unsigned char *got = erg_peers_take(peers, from, channel, &count);
            fill(expected, BIG, from, env->rank, channel);
            assert_int_equal(count, BIG - channel);
            assert_memory_equal(got, expected, count);
            free(got);
            await(peers, from, channel);
            free(erg_peers_take(peers, from, channel, &count));
            assert_int_equal(count, 0);
        }
    assert_ok(erg_rendezvous_barrier(rendezvous, 60, &err), &err);
    erg_peers_close(peers);
    free(expected);
    free(bytes);
}

static void messages_arrive_in_order_on_each_channel(void **state)
{
    (void)state;
    run_ranks(WORLD, exchange);
}

/* Rank 1 dies once the others are there; they wait for it and learn so. */
static void lose(const struct erg_launch_environment *env, struct erg_rendezvous *rendezvous)
{
    struct erg_peers *peers;
    struct erg_error err;
    assert_ok(erg_peers_open(&peers, rendezvous, 60, &err), &err);
    if (env->rank == 1) {
        await(peers, 0, 0);
        await(peers, 2, 0);
        _exit(0);
    }
    erg_peers_send(peers, 1, 0, "", 0);
    int result = 0;
    while (result == 0 && !erg_peers_has(peers, 1, 0))
        result = erg_peers_wait(peers, &err);
    assert_int_equal(result, -1);
    assert_non_null(strstr(err.message, "rank 1"));
    erg_peers_close(peers);
}

static void death_of_a_rank_ends_waits(void **state)
{
    (void)state;
    run_ranks(3, lose);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_in_order_on_each_channel),
        cmocka_unit_test(death_of_a_rank_ends_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
