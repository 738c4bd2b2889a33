/* ergon COMMAND: finds the command, runs it and reports its end. */
#include "cli/cli.h"

#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* clang-format off */
const struct erg_command *const erg_commands[] = {
    &erg_cmd_optimize,
    &erg_cmd_verify,
    &erg_cmd_show,
    &erg_cmd_frontier,
    &erg_cmd_memory,
    &erg_cmd_run,
    &erg_cmd_measure,
    &erg_cmd_monitor,
    &erg_cmd_record,
    &erg_cmd_export,
    &erg_cmd_serve,
    &erg_cmd_daemon,
    &erg_cmd_doctor,
    &erg_cmd_fit,
    &erg_cmd_import,
    &erg_cmd_layout,
    &erg_cmd_characterize,
    &erg_cmd_simulate,
    &erg_cmd_schedule,
    &erg_cmd_submit,
    &erg_cmd_jobs,
    &erg_cmd_run_job,
    &erg_cmd_probe,
    &erg_cmd_tokenize,
    &erg_cmd_train,
    &erg_cmd_hook,
    &erg_cmd_completion,
    NULL,
};
/* clang-format on */

static void print_overview(void)
{
    puts("ergon plans the training of large models within a budget of time and energy.\n\n"
         "Usage: ergon COMMAND [ARGUMENT]... [OPTION]...\n\nCommands:");
    for (size_t i = 0; erg_commands[i]; i++)
        printf("  %-12s %s\n", erg_commands[i]->name, erg_commands[i]->summary);
    puts("  help         show the help of a command\n\n"
         "\"ergon COMMAND --help\" shows the options of a command with examples.");
}

/* Returns NULL with an error if no command has that name. */
static const struct erg_command *find_command(const char *name, struct erg_error *err)
{
    const char *names[64] = {"help"};
    size_t count = 1;
    for (size_t i = 0; erg_commands[i]; i++) {
        const struct erg_command *command = erg_commands[i];
        if (strcmp(command->name, name) == 0)
            return command;
        if (command->former_name && strcmp(command->former_name, name) == 0)
            return command;
        names[count++] = erg_commands[i]->name;
    }
    const char *closest = erg_closest(name, names);
    if (closest)
        erg_fail(err, ERG_USAGE, "ergon has no command \"%s\"; did you mean \"%s\"?", name,
                 closest);
    else
        erg_fail(err, ERG_USAGE, "ergon has no command \"%s\"; \"ergon help\" lists them", name);
    return NULL;
}

static void print_help(const struct erg_command *command)
{
    struct erg_text text = {0};
    erg_options_help(&text, command);
    fputs(text.data, stdout);
    erg_text_release(&text);
}

static int run_command(const char *name, int argc, char **argv, struct erg_error *err)
{
    const struct erg_command *command = find_command(name, err);
    if (!command)
        return -1;
    if (command->listens) { /* before anything that takes time */
        erg_interrupt_on(SIGUSR1);
        erg_interrupt_request_on(SIGUSR2);
    }
    struct erg_invocation call;
    int result = erg_options_parse(&call, command, argc, argv, err);
    if (result == 0 && call.common.help) {
        print_help(command);
    } else if (result == 0) {
        erg_terminal_start(call.common.quiet ? -1 : call.common.verbose);
        if (strcmp(name, command->name) != 0)
            erg_log(
                ERG_LOG_WARNING,
                "\"ergon %s\" is now \"ergon %s\"; the next version will not accept the old name",
                name, command->name);
        if (!command->passes_output)
            erg_terminal_guard_output();
        result = command->run(&call, err);
        erg_terminal_finish();
    }
    erg_invocation_release(&call);
    return result;
}

static int dispatch(int argc, char **argv, struct erg_error *err)
{
    if (argc < 2)
        return erg_fail(err, ERG_USAGE, "ergon needs a command; \"ergon help\" lists them");
    const char *first = argv[1];
    bool version = !strcmp(first, "--version");
    bool help = !strcmp(first, "help") || !strcmp(first, "--help") || !strcmp(first, "-h");
    if ((version && argc > 2) || (help && argc > 3))
        return erg_fail(err, ERG_USAGE, "\"ergon %s\" got the argument \"%s\", expected none",
                        first, argv[version ? 2 : 3]);
    if (version) {
        puts("ergon " ERGON_VERSION);
        return 0;
    }
    if (help && argc == 2) {
        print_overview();
        return 0;
    }
    if (help) {
        const struct erg_command *command = find_command(argv[2], err);
        if (!command)
            return -1;
        print_help(command);
        return 0;
    }
    return run_command(first, argc - 2, argv + 2, err);
}

/* If one of the first three descriptors is closed, a file opened later would get its number and
 * receive messages. Writing a result to a closed standard output stays an error. */
static void occupy_standard_files(void)
{
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
    for (int file = 0; file < 3; file++)
        if (fcntl(file, F_GETFD) < 0 && open("/dev/null", modes[file]) != file)
            _exit(ERG_FAILED);
}

static void out_of_memory(size_t count, size_t bytes)
{
    char text[160];
    int length = snprintf(text, sizeof text,
                          "ergon: out of memory: could not allocate %zu x %zu bytes, expected a "
                          "smaller job or a machine with more memory\n",
                          count, bytes);
    ssize_t ignored = write(STDERR_FILENO, text, (size_t)length);
    (void)ignored;
    _exit(ERG_FAILED); /* finished work is on the disk; nothing here may allocate */
}

int main(int argc, char **argv)
{
    struct erg_error err = {0};
    occupy_standard_files();
    erg_memory_set_handler(out_of_memory);
    erg_interrupt_install();
    int result = dispatch(argc, argv, &err);
    /* A full disk or a closed pipe behind standard output is an error, whether the first write
     * failed or the last. */
    bool failed_before = ferror(stdout) != 0;
    if (fclose(stdout) != 0 && result == 0)
        result = erg_fail(&err, ERG_FAILED, "Writing the result to standard output failed: %s",
                          strerror(errno));
    else if (failed_before && result == 0)
        result = erg_fail(&err, ERG_FAILED,
                          "Writing the result to standard output failed, and it is not complete; "
                          "expected space on the disk and a reader of the pipe");
    if (result == 0)
        return ERG_OK;
    if (*err.message) { /* otherwise another rank prints it */
        fputs("ergon: ", stderr);
        erg_terminal_message(err.message);
    }
    if (err.status == ERG_INTERRUPTED && erg_interrupted())
        return 128 + erg_interrupt_signal(); /* as a shell reports it */
    return err.status ? (int)err.status : ERG_FAILED;
}
