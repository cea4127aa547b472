/* Runner of a user's program in the user's own image: one command for each connection.
 *
 *   runner PORT [--open-network]   listen on 127.0.0.1
 *   runner PORT --check            exit with 0 if a runner listens
 *
 * A client (platform_sdk/gateway/runner.py) sends frames: a type, four bytes of length (big-endian), the content.
 *   a  word of the command     e  NAME=VALUE of its environment     i  its standard input
 *   p  port that it may connect to, in decimal                      x  start it
 * The runner sends o (standard output), r (standard error) and at last z: the exit status in decimal, negative for a
 * signal. The end of a command, and of the connection, ends every process that the command started.
 *
 * A command has a folder of its own as HOME and TMPDIR, and no network but TCP connections to the port p: Landlock
 * (Linux 6.7) restricts connections and seccomp refuses other sockets. Where the kernel cannot, no command is started,
 * unless the runner was started with --open-network.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef LANDLOCK_ACCESS_NET_CONNECT_TCP /* headers older than Linux 6.7 */
#define LANDLOCK_ACCESS_NET_BIND_TCP (1ULL << 0)
#define LANDLOCK_ACCESS_NET_CONNECT_TCP (1ULL << 1)
#endif

enum { MAX_WORDS = 1024, MAX_FRAME = 16 << 20, CHUNK = 65536, MAX_COMMANDS = 1024 };

/* The kernel's structures, as of Linux 6.12, whatever the headers are. */
struct ruleset { uint64_t files, network, scopes; };
struct network_rule { uint64_t access, port; };

struct request {
    char *words[MAX_WORDS + 1], *variables[MAX_WORDS + 1], *input;
    size_t word_count, variable_count, input_length;
    long port;
};

static int open_network;

static int read_all(int from, void *into, size_t length)
{
    for (char *at = into; length > 0;) {
        ssize_t got = read(from, at, length);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return -1;
        at += got, length -= (size_t)got;
    }
    return 0;
}

static int write_all(int to, const void *from, size_t length)
{
    for (const char *at = from; length > 0;) {
        ssize_t put = send(to, at, length, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return -1;
        at += put, length -= (size_t)put;
    }
    return 0;
}

static int send_frame(int client, char type, const void *content, size_t length)
{
    unsigned char head[5] = {(unsigned char)type, length >> 24, length >> 16, length >> 8, length};
    return write_all(client, head, 5) || write_all(client, content, length) ? -1 : 0;
}

/* Send a failure of the runner itself as standard error, with the status of a command that could not be started. */
static void fail(int client, const char *what)
{
    char text[512];
    int length = snprintf(text, sizeof text, "runner: %s: %s\n", what, strerror(errno));
    send_frame(client, 'r', text, (size_t)length);
    send_frame(client, 'z', "126", 3);
}

static int read_request(int client, struct request *request)
{
    memset(request, 0, sizeof *request);
    for (size_t total = 0;;) {
        unsigned char head[5];
        if (read_all(client, head, 5)) return -1;
        size_t length = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
        if ((total += length) > MAX_FRAME) return -1;
        char *content = malloc(length + 1);
        if (!content || read_all(client, content, length)) return -1;
        content[length] = 0;
        if (head[0] == 'a' && request->word_count < MAX_WORDS) request->words[request->word_count++] = content;
        else if (head[0] == 'e' && request->variable_count < MAX_WORDS)
            request->variables[request->variable_count++] = content;
        else if (head[0] == 'i') request->input = content, request->input_length = length;
        else if (head[0] == 'p') request->port = strtol(content, NULL, 10);
        else if (head[0] == 'x' && request->word_count > 0) return 0;
        else return -1;
    }
}

/* Allow TCP connections to one port, and no other socket of the network; from Linux 6.12 on, no signals to processes that
 * the command did not start. */
static int restrict_network(long port)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1 /* LANDLOCK_CREATE_RULESET_VERSION */);
    if (version >= 0 && version < 4) return errno = ENOSYS, -1;
    struct ruleset rules = {0, LANDLOCK_ACCESS_NET_BIND_TCP | LANDLOCK_ACCESS_NET_CONNECT_TCP, version < 6 ? 0 : 3};
    struct network_rule rule = {LANDLOCK_ACCESS_NET_CONNECT_TCP, (uint64_t)port};
    int set = version < 0 ? -1 : (int)syscall(SYS_landlock_create_ruleset, &rules, version < 6 ? 16 : 24, 0);
    if (set < 0 || syscall(SYS_landlock_add_rule, set, 2 /* LANDLOCK_RULE_NET_PORT */, &rule, 0)) return -1;
    if (syscall(SYS_landlock_restrict_self, set, 0)) return -1;
    close(set);
#if defined __x86_64__
    const uint32_t machine = 0xC000003E;
#elif defined __aarch64__
    const uint32_t machine = 0xC00000B7;
#else
#error "the seccomp filter is written for x86-64 and arm64"
#endif
    /* Landlock checks connect() of TCP alone: so no other protocol, and no connection by sending (TCP Fast Open). */
    enum { DENY = 24, ALLOW = 25 };
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define TEST(at, how, value, yes, no) BPF_JUMP(BPF_JMP | how | BPF_K, value, yes - at - 1, no - at - 1)
    struct sock_filter filter[] = {
        /*  0 */ LOAD(arch),
        /*  1 */ TEST(1, BPF_JEQ, machine, 3, 2),
        /*  2 */ BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        /*  3 */ LOAD(nr),
        /*  4 */ TEST(4, BPF_JGE, 0x40000000, DENY, 5), /* x32's system calls */
        /*  5 */ TEST(5, BPF_JEQ, SYS_io_uring_setup, DENY, 6), /* connects without connect() */
        /*  6 */ TEST(6, BPF_JEQ, SYS_sendto, 12, 7),
        /*  7 */ TEST(7, BPF_JEQ, SYS_sendmmsg, 12, 8),
        /*  8 */ TEST(8, BPF_JEQ, SYS_sendmsg, 10, 9),
        /*  9 */ TEST(9, BPF_JEQ, SYS_socket, 14, ALLOW),
        /* 10 */ LOAD(args[2]),
        /* 11 */ BPF_STMT(BPF_JMP | BPF_JA, 1),
        /* 12 */ LOAD(args[3]),
        /* 13 */ TEST(13, BPF_JSET, MSG_FASTOPEN, DENY, ALLOW),
        /* 14 */ LOAD(args[0]),
        /* 15 */ TEST(15, BPF_JEQ, AF_NETLINK, ALLOW, 16), /* lists the interfaces */
        /* 16 */ TEST(16, BPF_JEQ, AF_INET, 18, 17),
        /* 17 */ TEST(17, BPF_JEQ, AF_INET6, 18, DENY),
        /* 18 */ LOAD(args[1]),
        /* 19 */ BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf), /* without SOCK_NONBLOCK and SOCK_CLOEXEC */
        /* 20 */ TEST(20, BPF_JEQ, SOCK_STREAM, 21, DENY),
        /* 21 */ LOAD(args[2]),
        /* 22 */ TEST(22, BPF_JEQ, 0, ALLOW, 23),
        /* 23 */ TEST(23, BPF_JEQ, IPPROTO_TCP, ALLOW, DENY),
        /* 24 */ BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        /* 25 */ BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Return a child of this process that is not among those kept, or 0. Orphans of children become children: this process is
 * a subreaper. */
static pid_t child_besides(const pid_t *kept, size_t count)
{
    pid_t found = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && !found && (entry = readdir(proc));) {
        char path[300], text[512], *end;
        pid_t pid = (pid_t)strtol(entry->d_name, &end, 10), parent = 0;
        if (*end || pid <= 0) continue;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
        if (file >= 0) close(file);
        if (length <= 0) continue;
        text[length] = 0;
        char *after = strrchr(text, ')'); /* the name may have parentheses of its own */
        if (!after || sscanf(after + 1, " %*c %d", &parent) != 1 || parent != getpid()) continue;
        found = pid;
        for (size_t i = 0; i < count; i++) if (kept[i] == pid) found = 0;
    }
    if (proc) closedir(proc);
    return found;
}

static void end_children(const pid_t *kept, size_t count)
{
    for (pid_t child; (child = child_besides(kept, count));) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
}

static int open_folder(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)walk;
    if (kind == FTW_D || kind == FTW_DNR) chmod(path, 0700);
    return 0;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path), 0;
}

static void start(const struct request *request, const char *folder, int in, int out, int err)
{
    char home[300], temporary[300];
    snprintf(home, sizeof home, "HOME=%s", folder);
    snprintf(temporary, sizeof temporary, "TMPDIR=%s", folder);
    putenv(home), putenv(temporary);
    for (size_t i = 0; i < request->variable_count; i++) putenv(request->variables[i]);
    setsid();
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(126);
    close_range(3, ~0U, 0);
    signal(SIGPIPE, SIG_DFL), signal(SIGTERM, SIG_DFL);
    if (!open_network && restrict_network(request->port)) {
        dprintf(2, "runner: this node's kernel cannot restrict the program's network: %s; it needs Linux 6.7 with "
                   "Landlock, or set job.program.open_network in the cluster's file\n", strerror(errno));
        _exit(126);
    }
    execvp(request->words[0], request->words);
    dprintf(2, "runner: %s: %s\n", request->words[0], strerror(errno));
    _exit(127);
}

/* Pass on what the command writes until it has ended, with what it started, or the client has gone; return 0 for the
 * former, with the command's status. */
static int follow(int client, int out, int err, pid_t child, int *status)
{
    static char chunk[CHUNK];
    struct pollfd wait[3] = {{client, POLLIN, 0}, {out, POLLIN, 0}, {err, POLLIN, 0}};
    for (int running = 1; running || wait[1].fd >= 0 || wait[2].fd >= 0;) {
        if (poll(wait, 3, running ? 20 : -1) < 0 && errno != EINTR) return -1;
        if (wait[0].revents) return -1; /* a client sends nothing after x: it is gone */
        for (int i = 1; i < 3; i++) {
            if (wait[i].fd < 0 || !wait[i].revents) continue;
            ssize_t length = read(wait[i].fd, chunk, sizeof chunk);
            if (length <= 0) wait[i].fd = -1;
            else if (send_frame(client, i == 1 ? 'o' : 'r', chunk, (size_t)length)) return -1;
        }
        if (running && waitpid(child, status, WNOHANG) == child) {
            running = 0;
            end_children(NULL, 0); /* those that hold the streams open */
        }
    }
    return 0;
}

static void serve(int client)
{
    static struct request request;
    char folder[] = "/tmp/hopforge-program-XXXXXX", given[64], text[16];
    int out[2], err[2], status = 0;
    if (read_request(client, &request)) return;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || !mkdtemp(folder)) return fail(client, "cannot make a folder");
    snprintf(given, sizeof given, "%s/.stdin", folder);
    int in = open(given, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* a file: a program that reads nothing would block a pipe */
    if (in < 0 || unlink(given)) return fail(client, "cannot write the question");
    errno = ENOSPC; /* a short write sets no errno */
    if (pwrite(in, request.input, request.input_length, 0) != (ssize_t)request.input_length)
        return fail(client, "cannot write the question");
    if (pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) return fail(client, "cannot make a pipe");
    pid_t child = fork();
    if (child < 0) return fail(client, "cannot start a process");
    if (child == 0) start(&request, folder, in, out[1], err[1]);
    close(out[1]), close(err[1]);
    int gone = follow(client, out[0], err[0], child, &status);
    end_children(NULL, 0);
    nftw(folder, open_folder, 16, FTW_PHYS); /* folders without write permission cannot be emptied */
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    int code = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    if (!gone) send_frame(client, 'z', text, (size_t)snprintf(text, sizeof text, "%d", code));
}

static int tcp(long port, int (*use)(int, const struct sockaddr *, socklen_t))
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1, made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    return made < 0 || use(made, (struct sockaddr *)&address, sizeof address) ? -1 : made;
}

static void stop(int number)
{
    (void)number;
    kill(-1, SIGKILL); /* in a container: all but this process */
    _exit(0);
}

int main(int count, char **words)
{
    long port = count > 1 ? strtol(words[1], NULL, 10) : 0;
    if (port < 1 || port > 65535 || count > 3) return fprintf(stderr, "usage: runner PORT [--check|--open-network]\n"), 2;
    if (count == 3 && strcmp(words[2], "--check") == 0) return tcp(port, connect) < 0;
    open_network = count == 3 && strcmp(words[2], "--open-network") == 0;
    int server = tcp(port, bind);
    if (server < 0 || listen(server, 256)) return perror("runner: cannot listen"), 1;
    if (getpid() == 1) signal(SIGTERM, stop);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_DUMPABLE, 0); /* a command must not trace this process, whose network is not restricted */
    static pid_t serving[MAX_COMMANDS];
    for (;;) {
        struct pollfd wait = {server, POLLIN, 0};
        poll(&wait, 1, 200);
        int some_ended = 0;
        for (pid_t ended; (ended = waitpid(-1, NULL, WNOHANG)) > 0; some_ended = 1)
            for (size_t i = 0; i < MAX_COMMANDS; i++) if (serving[i] == ended) serving[i] = 0;
        if (some_ended) end_children(serving, MAX_COMMANDS); /* of a command that killed the process that served it */
        if (!(wait.revents & POLLIN)) continue;
        int client = accept4(server, NULL, NULL, SOCK_CLOEXEC);
        size_t place = 0;
        while (place < MAX_COMMANDS && serving[place]) place++;
        if (client >= 0 && place < MAX_COMMANDS) {
            pid_t own = fork();
            if (own == 0) {
                close(server);
                signal(SIGTERM, SIG_DFL);
                serve(client);
                _exit(0);
            }
            if (own > 0) serving[place] = own;
        }
        if (client >= 0) close(client);
    }
}
