/*
 * A command as several ranks, whose lines come with their numbers: launch RANKS COMMAND...
 *
 *     cc launch.c $(pkg-config --cflags --libs ergon) -o launch && ./launch 2 sh -c 'echo $RANK'
 */
#include <ergon/launch.h>
#include <stdio.h>
#include <stdlib.h>

static void print_line(void *context, int rank, int is_error, const char *text, size_t count)
{
    (void)context;
    fprintf(is_error ? stderr : stdout, "rank %d: %.*s\n", rank, (int)count, text);
}

int main(int argc, char **argv)
{
    struct erg_error err;
    if (argc < 3) {
        fprintf(stderr, "usage: launch RANKS COMMAND [ARGUMENT]...\n");
        return 2;
    }
    const struct erg_launch_options options = {.size = sizeof options,
                                               .ranks = atoi(argv[1]),
                                               .command = (const char *const *)argv + 2,
                                               .timeout_s = 60,
                                               .line = print_line};
    if (erg_launch_ranks(&options, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    printf("all %s ranks have ended\n", argv[1]);
    return 0;
}
