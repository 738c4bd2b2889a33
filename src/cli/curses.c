/* The terminal of ergon monitor, by ncurses: opens it, draws, reads keys and restores it. */
#include "cli/curses.h"

#include <curses.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* Global, since there is only one terminal. A signal handler finds here what it needs to restore
 * it. */
static struct {
    SCREEN *screen;
    FILE *output; /* below the layer that escapes the control characters of standard output */
    struct termios before;
    char leave[256]; /* default colours, a visible cursor, the normal screen */
    bool colours;
} terminal;

static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGHUP, SIGQUIT};

/* A signal handler may not call endwin(); it may call write() and tcsetattr(). */
static void on_crash(int number)
{
    ssize_t written = write(STDOUT_FILENO, terminal.leave, strlen(terminal.leave));
    (void)written;
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal.before);
    signal(number, SIG_DFL);
    raise(number);
}

static void add_capability(const char *name)
{
    const char *text = tigetstr(name);
    size_t used = strlen(terminal.leave);
    if (text && text != (const char *)-1)
        snprintf(terminal.leave + used, sizeof terminal.leave - used, "%s", text);
}

static void watch_crashes(void)
{
    terminal.leave[0] = '\0';
    add_capability("sgr0");
    add_capability("cnorm");
    add_capability("rmkx");
    add_capability("rmcup");
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) {
        struct sigaction action = {.sa_handler = on_crash};
        sigemptyset(&action.sa_mask);
        sigaction(crashes[i], &action, NULL);
    }
}

int erg_curses_open(bool *ascii, struct erg_error *err)
{
    setlocale(LC_CTYPE, "");
    *ascii = strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO))
        return erg_fail(err, ERG_USAGE,
                        "\"ergon monitor\" needs a terminal; --once prints a table, and --once "
                        "--json a document");
    tcgetattr(STDIN_FILENO, &terminal.before);
    int output = dup(STDOUT_FILENO);
    terminal.output = output < 0 ? NULL : fdopen(output, "w");
    if (!terminal.output)
        return erg_fail(err, ERG_FAILED, "Opening the terminal failed: %s", strerror(errno));
    terminal.screen = newterm(NULL, terminal.output, stdin);
    if (!terminal.screen)
        return erg_fail(err, ERG_FAILED,
                        "the terminal's type TERM=\"%s\" is unknown, expected one such as "
                        "\"xterm-256color\"",
                        getenv("TERM") ? getenv("TERM") : "");
    const char *no_colour = getenv("NO_COLOR");
    watch_crashes();
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    curs_set(0);
    terminal.colours = has_colors() && !(no_colour && *no_colour);
    if (terminal.colours) {
        start_color();
        use_default_colors();
        init_pair(ERG_STYLE_GOOD, COLOR_GREEN, -1);
        init_pair(ERG_STYLE_WARNING, COLOR_YELLOW, -1);
        init_pair(ERG_STYLE_BAD, COLOR_RED, -1);
    }
    return 0;
}

void erg_curses_close(void)
{
    endwin();
    delscreen(terminal.screen);
    fclose(terminal.output);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        signal(crashes[i], SIG_DFL);
}

void erg_curses_size(int32_t *rows, int32_t *columns)
{
    getmaxyx(stdscr, *rows, *columns);
}

static attr_t attributes(enum erg_style style)
{
    switch (style) {
    case ERG_STYLE_STRONG:
        return A_BOLD;
    case ERG_STYLE_FAINT:
        return A_DIM;
    case ERG_STYLE_GOOD:
    case ERG_STYLE_WARNING:
    case ERG_STYLE_BAD:
        return terminal.colours          ? (attr_t)COLOR_PAIR(style)
               : style == ERG_STYLE_GOOD ? A_NORMAL
                                         : A_BOLD;
    default:
        return A_NORMAL;
    }
}

void erg_curses_show(const struct erg_monitor *monitor)
{
    struct erg_monitor_run run = {.size = sizeof run};
    erase();
    for (size_t i = 0; i < erg_monitor_runs(monitor); i++) {
        if (erg_monitor_run(monitor, i, &run, NULL) != 0)
            continue;
        attrset((int)attributes((enum erg_style)run.style));
        mvaddstr(run.row, run.column, run.text);
    }
    refresh();
}

enum erg_key erg_curses_key(int timeout_ms)
{
    timeout(timeout_ms);
    switch (getch()) {
    case 'q':
    case 'Q':
        return ERG_KEY_QUIT;
    case KEY_UP:
    case 'k':
        return ERG_KEY_UP;
    case KEY_DOWN:
    case 'j':
        return ERG_KEY_DOWN;
    case KEY_PPAGE:
        return ERG_KEY_PAGE_UP;
    case KEY_NPAGE:
        return ERG_KEY_PAGE_DOWN;
    case KEY_RESIZE:
        return ERG_KEY_RESIZE;
    default:
        return ERG_KEY_NONE;
    }
}
