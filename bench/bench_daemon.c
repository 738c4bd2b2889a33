/*
 * How long the daemon takes beside the driver, on the fake NVML: from a client's send to the begin
 * of the driver's call, and from that call's end to the client's receive. One client back to back,
 * eight that change a clock every 2 ms, the same while one GPU hangs in the driver, and, for
 * comparison, two processes that only pass a packet to each other. No clock of a real GPU is
 * touched.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "base/clock.h"
#include "base/thread.h"
#include "daemon/daemon.h"
#include "telemetry/daemon_client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS = 8, CHANGES = 4000 };

static char folder[] = "/tmp/ergon-bench-XXXXXX", sock[64], rules[64], script[64];

struct client {
    pthread_t thread;
    uint32_t gpu;
    int64_t period_ns; /* 0: back to back */
    double us[CHANGES];
    struct erg_error error;
    bool failed;
};

static int change(struct erg_daemon_client *daemon, uint64_t lease, unsigned i, double *us,
                  struct erg_error *err)
{
    uint32_t clock = 600 + 15 * (i % 80);
    struct erg_wire_request request = {.type = ERG_WIRE_CLOCK,
                                       .lease = lease,
                                       .low = clock,
                                       .high = clock,
                                       .flags = ERG_WIRE_WAIT};
    struct erg_wire_change done = {0};
    struct erg_wire_reader body;
    int64_t begin_ns = erg_now_ns();
    if (erg_daemon_exchange(daemon, &request, &body, err) != 0)
        return -1;
    int64_t end_ns = erg_now_ns();
    if (!erg_wire_read_change(&done, &body))
        return erg_fail(err, ERG_FAILED, "the answer is no change");
    *us = 1e-3 * (double)(end_ns - begin_ns - (done.end_ns - done.begin_ns));
    return 0;
}

static void *run_client(void *argument)
{
    struct client *client = argument;
    struct erg_daemon_client *daemon;
    struct erg_wire_hello hello;
    uint64_t lease;
    uint32_t ttl_ms;
    client->failed = erg_daemon_connect(&daemon, sock, &hello, &client->error) != 0;
    if (client->failed)
        return NULL;
    client->failed = erg_daemon_take_lease(daemon, client->gpu, ERG_KNOB_CLOCK, &lease, &ttl_ms,
                                           &client->error) != 0;
    int64_t next_ns = erg_now_ns() + client->gpu * 250000;
    for (unsigned i = 0; i < CHANGES && !client->failed; i++) {
        next_ns += client->period_ns;
        if (client->period_ns)
            erg_sleep_ns(next_ns - erg_now_ns());
        client->failed = change(daemon, lease, i, &client->us[i], &client->error) != 0;
    }
    erg_daemon_disconnect(daemon);
    return NULL;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_row(const char *what, double *us, size_t count)
{
    qsort(us, count, sizeof *us, rising);
    printf("%-38s %8.1f %8.1f %8.1f %8.1f\n", what, us[count / 2], us[count * 99 / 100],
           us[count * 999 / 1000], us[count - 1]);
}

/* Clients on GPUs from `first` on. */
static int run_clients(const char *what, size_t first, size_t end, int64_t period_ns)
{
    static struct client clients[CLIENTS];
    static double all[CLIENTS * CHANGES];
    size_t count = 0;
    int failed = 0;
    for (size_t i = first; i < end; i++) {
        clients[i] = (struct client){.gpu = (uint32_t)i, .period_ns = period_ns};
        failed |= erg_thread_start(&clients[i].thread, run_client, &clients[i]);
    }
    for (size_t i = first; i < end; i++) {
        pthread_join(clients[i].thread, NULL);
        if (clients[i].failed)
            fprintf(stderr, "bench_daemon: %s\n", clients[i].error.message);
        failed |= clients[i].failed;
        memcpy(all + count, clients[i].us, sizeof clients[i].us);
        count += CHANGES;
    }
    if (!failed)
        print_row(what, all, count);
    return failed;
}

/* GPU 0 hangs for the rest of the time of the daemon. */
static int hang(struct erg_daemon_client **daemon)
{
    struct erg_wire_hello hello;
    struct erg_error err;
    uint64_t lease;
    uint32_t ttl_ms;
    struct erg_wire_request request = {.type = ERG_WIRE_CLOCK, .low = 900, .high = 900};
    if (erg_daemon_connect(daemon, sock, &hello, &err) != 0 ||
        erg_daemon_take_lease(*daemon, 0, ERG_KNOB_CLOCK, &lease, &ttl_ms, &err) != 0)
        return -1;
    request.lease = lease;
    return erg_daemon_exchange(*daemon, &request, NULL, &err);
}

/* A packet of the same size to another process and back. */
static void bench_packets(void)
{
    static double us[CHANGES];
    int ends[2];
    char packet[64] = "";
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0)
        return;
    pid_t other = fork();
    if (other == 0) {
        while (recv(ends[1], packet, sizeof packet, 0) > 0)
            (void)!send(ends[1], packet, sizeof packet, 0);
        _exit(0);
    }
    for (int i = 0; i < CHANGES; i++) {
        int64_t begin_ns = erg_now_ns();
        (void)!send(ends[0], packet, sizeof packet, 0);
        (void)!recv(ends[0], packet, sizeof packet, 0);
        us[i] = 1e-3 * (double)(erg_now_ns() - begin_ns);
    }
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    print_row("a packet to a process and back", us, CHANGES);
}

static pid_t start_daemon(const char *commands)
{
    FILE *file = fopen(script, "w");
    struct erg_daemon_client *client;
    struct erg_wire_hello hello;
    if (!file)
        return -1;
    /* GPUs that are nobody else's. */
    fprintf(file, "gpus %d\ntail %s\n%s", CLIENTS, folder + strlen(folder) - 6, commands);
    fclose(file);
    pid_t daemon = fork();
    if (daemon == 0) {
        struct erg_daemon_options options = {.config = rules, .folder = folder, .proc = "/proc"};
        struct erg_error err;
        int result = erg_daemon_run(&options, &err);
        if (result != 0)
            fprintf(stderr, "bench_daemon: %s\n", err.message);
        _exit(result != 0);
    }
    for (int i = 0; i < 5000; i++, erg_sleep_ns(2000000))
        if (erg_daemon_connect(&client, sock, &hello, NULL) == 0) {
            erg_daemon_disconnect(client);
            return daemon;
        }
    return -1;
}

static void end_daemon(pid_t daemon, int number)
{
    kill(daemon, number);
    waitpid(daemon, NULL, 0);
}

static int bench(void)
{
    struct erg_daemon_client *stuck = NULL;
    double load = 0;
    FILE *file = fopen("/proc/loadavg", "r");
    if (file && fscanf(file, "%lf", &load) == 1)
        fclose(file);
    printf("%zu cores, load %.1f; all in us       p50      p99    p99.9    worst\n",
           erg_thread_count(), load);
    bench_packets();
    pid_t daemon = start_daemon("");
    if (daemon < 0)
        return -1;
    int failed = run_clients("1 client, back to back", 0, 1, 0) ||
                 run_clients("8 clients, every 2 ms", 0, CLIENTS, 2000000);
    end_daemon(daemon, SIGTERM);
    daemon = start_daemon("gpu 0 hang SetGpuLockedClocks 0 3600\n");
    if (daemon < 0)
        return -1;
    failed = failed || hang(&stuck) != 0 ||
             run_clients("7 clients, every 2 ms, one GPU hangs", 1, CLIENTS, 2000000);
    end_daemon(daemon, SIGKILL); /* nothing else ends the hang */
    erg_daemon_disconnect(stuck);
    return failed ? -1 : 0;
}

int main(void)
{
    char command[128];
    if (!mkdtemp(folder))
        return 1;
    snprintf(sock, sizeof sock, "%s/ergond.sock", folder);
    snprintf(rules, sizeof rules, "%s/rules.yaml", folder);
    snprintf(script, sizeof script, "%s/script", folder);
    FILE *file = fopen(rules, "w");
    if (!file)
        return 1;
    fprintf(file,
            "rules:\n  - {user: '%lu', may: [clock], gpus: all}\n"
            "rate: {changes_per_s: 1e6, node_changes_per_s: 1e6, burst: 1000}\n",
            (unsigned long)geteuid());
    fclose(file);
    chmod(rules, 0600);
    setenv("ERGON_FAKE_NVML", script, 1);
    setenv("ERGON_NVML", ERGON_BENCH_FAKE_NVML, 1);
    int result = bench();
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    (void)!system(command);
    return result != 0;
}
