/* The lease of a spool (cluster/live/lease.h): one process at a time, whatever the order of calls.
 */
#define _GNU_SOURCE

#include "check.h"
#include "cluster/live/lease.h"
#include "folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RACES = 1000, RACERS = 2, LEASE_S = 30 };

/* Files in the folder: a lease's, and all. */
static long count_files(bool leases)
{
    DIR *files = opendir(folder);
    long count = 0;
    assert_non_null(files);
    for (struct dirent *entry; (entry = readdir(files)) != NULL;)
        count += entry->d_name[0] != '.' && (!leases || !strncmp(entry->d_name, "lease.", 6));
    closedir(files);
    return count;
}

static const char *lease_of(long number)
{
    static char name[40];
    snprintf(name, sizeof name, "lease.%ld", number);
    return in_folder(name);
}

static void write_lease(long number, const char *text)
{
    FILE *file = fopen(lease_of(number), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* As if it had been written so long ago. */
static void age(long number, long seconds)
{
    struct timespec times[2];
    struct stat info;
    assert_int_equal(stat(lease_of(number), &info), 0);
    times[0] = times[1] = info.st_mtim;
    times[0].tv_sec = times[1].tv_sec -= seconds;
    assert_int_equal(utimensat(AT_FDCWD, lease_of(number), times, 0), 0);
}

static void a_lease_is_taken_renewed_and_given_back(void **state)
{
    (void)state;
    struct erg_lease lease = {0};
    struct erg_error err;
    assert_int_equal(erg_lease_renew(&lease, folder, LEASE_S, &err), 0);
    assert_int_equal(lease.number, 1);
    age(1, 9);
    assert_int_equal(erg_lease_renew(&lease, folder, LEASE_S, &err), 0);
    assert_int_equal(lease.number, 1);
    /* Others could have taken it just now: who is late takes the next one, as they would. */
    age(1, 21);
    assert_int_equal(erg_lease_renew(&lease, folder, LEASE_S, &err), 0);
    assert_int_equal(lease.number, 2);
    erg_lease_give_back(&lease, folder);
    assert_int_equal(lease.number, 0);
    struct erg_lease other = {0};
    assert_int_equal(erg_lease_renew(&other, folder, LEASE_S, &err), 0);
    assert_int_equal(other.number, 3);
    /* Numbers that are over go, and what was written to take them. */
    assert_int_equal(count_files(false), 1);
    erg_lease_give_back(&other, folder);
}

static void a_lease_of_another_host_is_respected(void **state)
{
    (void)state;
    struct erg_lease lease = {0};
    struct erg_error err;
    assert_int_equal(erg_lease_renew(&lease, folder, LEASE_S, &err), 0);
    const long next = lease.number + 1;
    write_lease(next, "someone\nelsewhere\nboot\npids\n7\n30\n");
    age(next, 12);
    assert_int_equal(erg_lease_renew(&lease, folder, LEASE_S, &err), -1);
    assert_non_null(strstr(err.message, "process 7 on host 'elsewhere'"));
    assert_non_null(strstr(err.message, "for another 18 s"));
    age(next, 17);
    assert_int_equal(erg_lease_renew(&lease, folder, LEASE_S, &err), -1);
    age(next, 2);
    assert_int_equal(erg_lease_renew(&lease, folder, LEASE_S, &err), 0);
    assert_int_equal(lease.number, next + 1);
    /* Garbage is somebody's for a minute. */
    erg_lease_give_back(&lease, folder);
    write_lease(next + 2, "\n\n\x80");
    assert_int_equal(erg_lease_renew(&lease, folder, LEASE_S, &err), -1);
    age(next + 2, 61);
    assert_int_equal(erg_lease_renew(&lease, folder, LEASE_S, &err), 0);
    erg_lease_give_back(&lease, folder);
}

static void a_lease_ends_with_its_process(void **state)
{
    (void)state;
    struct erg_error err;
    int alive[2];
    char byte;
    assert_int_equal(pipe(alive), 0);
    const pid_t child = fork();
    if (child == 0) {
        struct erg_lease lease = {0};
        const bool held = erg_lease_renew(&lease, folder, LEASE_S, &err) == 0;
        byte = held ? 'y' : 'n';
        if (write(alive[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    struct erg_lease lease = {0};
    assert_int_equal(read(alive[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(erg_lease_renew(&lease, folder, LEASE_S, &err), -1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(erg_lease_renew(&lease, folder, LEASE_S, &err), 0);
    erg_lease_give_back(&lease, folder);
    close(alive[0]);
    close(alive[1]);
}

static void an_unwritable_folder_is_reported(void **state)
{
    (void)state;
    struct erg_lease lease = {0};
    struct erg_error err;
    assert_int_equal(erg_lease_renew(&lease, in_folder("nowhere"), LEASE_S, &err), 1);
    assert_non_null(strstr(err.message, "nowhere"));
}

/* ---- races ---- */

struct race {
    pthread_barrier_t ready, over;
    _Atomic int answers[RACERS];
    _Atomic long numbers[RACERS];
};

static void race(struct race *at, int racer)
{
    struct erg_error err;
    for (int i = 0; i < RACES; i++) {
        struct erg_lease lease = {0};
        pthread_barrier_wait(&at->ready);
        at->answers[racer] = erg_lease_renew(&lease, folder, LEASE_S, &err);
        at->numbers[racer] = lease.number;
        pthread_barrier_wait(&at->over);
    }
}

/* The highest lease is over in one of the ways in which it can be. */
static void end_lease(int way, long number)
{
    if (way == 0)
        age(number, LEASE_S + 1);
    else if (way == 1)
        write_lease(number, "-\nelsewhere\nboot\npids\n7\n0\n");
    else
        unlink(lease_of(number)); /* as in a folder without any */
}

static void of_racers_one_gets_it(void **state)
{
    (void)state;
    struct race *at =
        mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_barrierattr_t shared;
    pid_t children[RACERS];
    assert_true(at != MAP_FAILED);
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&at->ready, &shared, RACERS + 1);
    pthread_barrier_init(&at->over, &shared, RACERS + 1);
    for (int i = 0; i < RACERS; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            race(at, i);
            _exit(0);
        }
    }
    long wins[RACERS] = {0}, wrong = 0;
    for (int i = 0; i < RACES; i++) {
        pthread_barrier_wait(&at->ready);
        pthread_barrier_wait(&at->over);
        int winners = 0;
        for (int k = 0; k < RACERS; k++)
            if (at->answers[k] == 0) {
                winners++;
                wins[k]++;
                end_lease(i % 3, at->numbers[k]);
            }
        wrong += winners != 1;
    }
    for (int i = 0; i < RACERS; i++)
        assert_int_equal(waitpid(children[i], NULL, 0), children[i]);
    printf("%d races: %ld and %ld were won, %ld files are left\n", RACES, wins[0], wins[1],
           count_files(false));
    assert_int_equal(wrong, 0);
    assert_in_range(count_files(false), 0, 1);
    munmap(at, sizeof *at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_is_taken_renewed_and_given_back),
        cmocka_unit_test(a_lease_of_another_host_is_respected),
        cmocka_unit_test(a_lease_ends_with_its_process),
        cmocka_unit_test(an_unwritable_folder_is_reported),
        cmocka_unit_test(of_racers_one_gets_it),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
