;; The probe module: what the probe program (probes/src) checks, as far as a module of WASI preview 1 can try it at all. It is given
;; the same arguments and the same parameters on standard input, and says the same lines: docs/probes.md describes them.
;;
;;   0x0100  texts                       0x26000  the line that is being made
;;   0x0e00  constants of SHA-256        0x28000  what a proof hashes
;;   0x1000  an iovec, and what calls    0x2a000  schedule and state of SHA-256
;;           give back                   0x2b000  what was read from a file
;;   0x2000  parameters                  0x2c000  a path that is being made
;;   0x12000 variables                   0x2d000  arguments, the run's own name, names of folders
;;   0x24000 the detail of a line        0x30000  one part of a flood
;;
;; `cargo test -p runner --test it wasi` holds probe.wasm against this text.
(module
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir" (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $fd_prestat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_dir_name" (func $fd_prestat_dir_name (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $path_unlink_file (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_symlink" (func $path_symlink (param i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename" (func $path_rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_accept" (func $sock_accept (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_recv" (func $sock_recv (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_send" (func $sock_send (param i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 4)

  ;; Texts, each ended by a zero byte.
  (data (i32.const 256) "none\00")
  (data (i32.const 261) "EACCES\00")
  (data (i32.const 268) "EBADF\00")
  (data (i32.const 274) "EINVAL\00")
  (data (i32.const 281) "EISDIR\00")
  (data (i32.const 288) "ELOOP\00")
  (data (i32.const 294) "ENOENT\00")
  (data (i32.const 301) "ENOMEM\00")
  (data (i32.const 308) "ENOSYS\00")
  (data (i32.const 315) "ENOTDIR\00")
  (data (i32.const 323) "ENOTSOCK\00")
  (data (i32.const 332) "EOPNOTSUPP\00")
  (data (i32.const 343) "EPERM\00")
  (data (i32.const 349) "EROFS\00")
  (data (i32.const 355) "EXDEV\00")
  (data (i32.const 361) "EPROTO\00")
  (data (i32.const 368) "-\00")
  (data (i32.const 370) "containment-ledger/probe/v1\n\00")
  (data (i32.const 399) "nonce\00")
  (data (i32.const 405) "probe=\00")
  (data (i32.const 412) " dimension=\00")
  (data (i32.const 424) " check=\00")
  (data (i32.const 432) " result=\00")
  (data (i32.const 441) " errno=\00")
  (data (i32.const 449) " twin=\00")
  (data (i32.const 456) " nonce=\00")
  (data (i32.const 464) " detail=\00")
  (data (i32.const 473) "instrument-missing: no parameter \00")
  (data (i32.const 507) "error\00")
  (data (i32.const 513) "; \00")
  (data (i32.const 516) " attempts refused\00")
  (data (i32.const 534) "escaped\00")
  (data (i32.const 542) "contained\00")
  (data (i32.const 552) "../\00")
  (data (i32.const 556) "\00")
  (data (i32.const 557) "././/\00")
  (data (i32.const 563) "../../../../../../../../../../../..\00")
  (data (i32.const 599) "by a link; \00")
  (data (i32.const 611) "a private key\00")
  (data (i32.const 625) " \00")
  (data (i32.const 627) "allowed\00")
  (data (i32.const 635) "failed\00")
  (data (i32.const 642) "allowed=\00")
  (data (i32.const 651) "ok\00")
  (data (i32.const 654) "read\00")
  (data (i32.const 659) "traversal\00")
  (data (i32.const 669) "tree\00")
  (data (i32.const 674) "the read-only file opened \00")
  (data (i32.const 701) "write\00")
  (data (i32.const 707) "opened \00")
  (data (i32.const 715) "filesystem/write\00")
  (data (i32.const 732) "truncated \00")
  (data (i32.const 743) "unlinked \00")
  (data (i32.const 753) "renamed \00")
  (data (i32.const 762) " opened \00")
  (data (i32.const 771) "mark\00")
  (data (i32.const 776) "containment-probe\00")
  (data (i32.const 794) "/\00")
  (data (i32.const 796) "//\00")
  (data (i32.const 799) "evidence\00")
  (data (i32.const 808) "/proc/sys/kernel/core_pattern\00")
  (data (i32.const 838) "/proc/sys/kernel/modprobe\00")
  (data (i32.const 864) "/proc/sysrq-trigger\00")
  (data (i32.const 884) "knobs\00")
  (data (i32.const 890) "sock_send, sock_accept and sock_recv on 256 numbers; no function makes or connects a socket\00")
  (data (i32.const 982) "moved bytes \00")
  (data (i32.const 995) "tcp4\00")
  (data (i32.const 1000) "tcp6\00")
  (data (i32.const 1005) "udp\00")
  (data (i32.const 1009) "udp6\00")
  (data (i32.const 1014) "path\00")
  (data (i32.const 1019) "dns\00")
  (data (i32.const 1023) "absent\00")
  (data (i32.const 1030) "inherited\00")
  (data (i32.const 1040) "that fits\00")
  (data (i32.const 1050) "present\00")
  (data (i32.const 1058) "bytes\00")
  (data (i32.const 1064) "touch\00")
  (data (i32.const 1070) "bytes, of 256 MiB at most\00")
  (data (i32.const 1096) "half of the limit, then twice as much\00")
  (data (i32.const 1134) "millis\00")
  (data (i32.const 1141) "deadline\00")
  (data (i32.const 1150) "millis, of 60000 at most\00")
  (data (i32.const 1175) "a module goes on\00")
  (data (i32.const 1192) "timeout/outlived\00")
  (data (i32.const 1209) "cap\00")
  (data (i32.const 1213) "bytes, of 64 MiB at most\00")
  (data (i32.const 1238) "more follows on standard error\00")
  (data (i32.const 1269) "network\00")
  (data (i32.const 1277) "filesystem\00")
  (data (i32.const 1288) "environment\00")
  (data (i32.const 1300) "memory\00")
  (data (i32.const 1307) "timeout\00")
  (data (i32.const 1315) "output\00")
  ;; The constants of SHA-256 (FIPS 180-4, 4.2.2), little-endian.
  (data (i32.const 3584) "\98\2f\8a\42\91\44\37\71\cf\fb\c0\b5\a5\db\b5\e9\5b\c2\56\39\f1\11\f1\59\a4\82\3f\92\d5\5e\1c\ab")
  (data (i32.const 3616) "\98\aa\07\d8\01\5b\83\12\be\85\31\24\c3\7d\0c\55\74\5d\be\72\fe\b1\de\80\a7\06\dc\9b\74\f1\9b\c1")
  (data (i32.const 3648) "\c1\69\9b\e4\86\47\be\ef\c6\9d\c1\0f\cc\a1\0c\24\6f\2c\e9\2d\aa\84\74\4a\dc\a9\b0\5c\da\88\f9\76")
  (data (i32.const 3680) "\52\51\3e\98\6d\c6\31\a8\c8\27\03\b0\c7\7f\59\bf\f3\0b\e0\c6\47\91\a7\d5\51\63\ca\06\67\29\29\14")
  (data (i32.const 3712) "\85\0a\b7\27\38\21\1b\2e\fc\6d\2c\4d\13\0d\38\53\54\73\0a\65\bb\0a\6a\76\2e\c9\c2\81\85\2c\72\92")
  (data (i32.const 3744) "\a1\e8\bf\a2\4b\66\1a\a8\70\8b\4b\c2\a3\51\6c\c7\19\e8\92\d1\24\06\99\d6\85\35\0e\f4\70\a0\6a\10")
  (data (i32.const 3776) "\16\c1\a4\19\08\6c\37\1e\4c\77\48\27\b5\bc\b0\34\b3\0c\1c\39\4a\aa\d8\4e\4f\ca\9c\5b\f3\6f\2e\68")
  (data (i32.const 3808) "\ee\82\8f\74\6f\63\a5\78\14\78\c8\84\08\02\c7\8c\fa\ff\be\90\eb\6c\50\a4\f7\a3\f9\be\f2\78\71\c6")

  ;; Where text is being put, and how much of a detail there may be.
  (global $at (mut i32) (i32.const 0))
  ;; End of the detail.
  (global $detail (mut i32) (i32.const 0x24000))
  ;; The value that was found last.
  (global $value (mut i32) (i32.const 0))
  (global $length (mut i32) (i32.const 0))
  ;; The row.
  (global $control (mut i32) (i32.const 0))
  ;; The file that was opened last.
  (global $file (mut i32) (i32.const 0))
  ;; How long the run's own name is.
  (global $own (mut i32) (i32.const 0))
  ;; Of a check: whether an attack succeeded, how one was refused (an error of WASI, 0 for none), whether any was tried.
  (global $escaped (mut i32) (i32.const 0))
  (global $cause (mut i32) (i32.const 0))
  (global $tried (mut i32) (i32.const 0))

  ;; ---- Text ----

  (func $byte (param $b i32)
    (i32.store8 (global.get $at) (local.get $b))
    (global.set $at (i32.add (global.get $at) (i32.const 1))))

  (func $bytes (param $from i32) (param $count i32)
    (memory.copy (global.get $at) (local.get $from) (local.get $count))
    (global.set $at (i32.add (global.get $at) (local.get $count))))

  (func $size (param $text i32) (result i32)
    (local $end i32)
    (local.set $end (local.get $text))
    (block $done (loop $next
      (br_if $done (i32.eqz (i32.load8_u (local.get $end))))
      (local.set $end (i32.add (local.get $end) (i32.const 1)))
      (br $next)))
    (i32.sub (local.get $end) (local.get $text)))

  (func $put (param $text i32)
    (call $bytes (local.get $text) (call $size (local.get $text))))

  (func $decimal (param $n i32)
    (if (i32.ge_u (local.get $n) (i32.const 10))
      (then (call $decimal (i32.div_u (local.get $n) (i32.const 10)))))
    (call $byte (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10)))))

  (func $hex_digit (param $n i32)
    (call $byte (i32.add (local.get $n)
      (select (i32.const 48) (i32.const 87) (i32.lt_u (local.get $n) (i32.const 10))))))

  (func $same (param $a i32) (param $b i32) (param $count i32) (result i32)
    (local $i i32)
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $i) (local.get $count)))
      (if (i32.ne (i32.load8_u (i32.add (local.get $a) (local.get $i)))
                  (i32.load8_u (i32.add (local.get $b) (local.get $i))))
        (then (return (i32.const 0))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
    (i32.const 1))

  ;; ---- The detail: at most 1,024 bytes of printable ASCII, so what is longer or something else is left out ----

  (func $note (param $from i32) (param $count i32)
    (local $b i32)
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $count)))
      (local.set $b (i32.load8_u (local.get $from)))
      (if (i32.and (i32.lt_u (global.get $detail) (i32.const 0x243f0))
                   (i32.lt_u (i32.sub (local.get $b) (i32.const 32)) (i32.const 95)))
        (then
          (i32.store8 (global.get $detail) (local.get $b))
          (global.set $detail (i32.add (global.get $detail) (i32.const 1)))))
      (local.set $from (i32.add (local.get $from) (i32.const 1)))
      (local.set $count (i32.sub (local.get $count) (i32.const 1)))
      (br $next))))

  (func $say (param $text i32)
    (call $note (local.get $text) (call $size (local.get $text))))

  (func $say_number (param $n i32)
    (global.set $at (i32.const 0x2c000))
    (call $decimal (local.get $n))
    (call $note (i32.const 0x2c000) (i32.sub (global.get $at) (i32.const 0x2c000))))

  ;; ---- SHA-256 (FIPS 180-4) of what stands from 0x28000 on ----

  (func $w (param $i i32) (result i32)
    (i32.load (i32.add (i32.const 0x2a000) (i32.shl (local.get $i) (i32.const 2)))))

  (func $set_w (param $i i32) (param $v i32)
    (i32.store (i32.add (i32.const 0x2a000) (i32.shl (local.get $i) (i32.const 2))) (local.get $v)))

  ;; The bytes of a word the other way round.
  (func $turn (param $x i32) (result i32)
    (i32.or
      (i32.and (i32.rotl (local.get $x) (i32.const 8)) (i32.const 0x00ff00ff))
      (i32.and (i32.rotl (local.get $x) (i32.const 24)) (i32.const 0xff00ff00))))

  (func $rounds (param $block i32)
    (local $i i32) (local $x i32) (local $y i32)
    (local $a i32) (local $b i32) (local $c i32) (local $d i32)
    (local $e i32) (local $f i32) (local $g i32) (local $h i32)
    (block $done (loop $next
      (br_if $done (i32.eq (local.get $i) (i32.const 16)))
      (call $set_w (local.get $i)
        (call $turn (i32.load (i32.add (local.get $block) (i32.shl (local.get $i) (i32.const 2))))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
    (block $done (loop $next
      (br_if $done (i32.eq (local.get $i) (i32.const 64)))
      (local.set $x (call $w (i32.sub (local.get $i) (i32.const 15))))
      (local.set $y (call $w (i32.sub (local.get $i) (i32.const 2))))
      (call $set_w (local.get $i)
        (i32.add
          (i32.add (call $w (i32.sub (local.get $i) (i32.const 16))) (call $w (i32.sub (local.get $i) (i32.const 7))))
          (i32.add
            (i32.xor (i32.xor (i32.rotr (local.get $x) (i32.const 7)) (i32.rotr (local.get $x) (i32.const 18)))
                     (i32.shr_u (local.get $x) (i32.const 3)))
            (i32.xor (i32.xor (i32.rotr (local.get $y) (i32.const 17)) (i32.rotr (local.get $y) (i32.const 19)))
                     (i32.shr_u (local.get $y) (i32.const 10))))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
    (local.set $a (i32.load (i32.const 0x2a200)))
    (local.set $b (i32.load (i32.const 0x2a204)))
    (local.set $c (i32.load (i32.const 0x2a208)))
    (local.set $d (i32.load (i32.const 0x2a20c)))
    (local.set $e (i32.load (i32.const 0x2a210)))
    (local.set $f (i32.load (i32.const 0x2a214)))
    (local.set $g (i32.load (i32.const 0x2a218)))
    (local.set $h (i32.load (i32.const 0x2a21c)))
    (local.set $i (i32.const 0))
    (block $done (loop $next
      (br_if $done (i32.eq (local.get $i) (i32.const 64)))
      (local.set $x
        (i32.add
          (i32.add
            (i32.add (local.get $h)
              (i32.xor (i32.xor (i32.rotr (local.get $e) (i32.const 6)) (i32.rotr (local.get $e) (i32.const 11)))
                       (i32.rotr (local.get $e) (i32.const 25))))
            (i32.xor (i32.and (local.get $e) (local.get $f))
                     (i32.and (i32.xor (local.get $e) (i32.const -1)) (local.get $g))))
          (i32.add
            (i32.load (i32.add (i32.const 0xe00) (i32.shl (local.get $i) (i32.const 2))))
            (call $w (local.get $i)))))
      (local.set $y
        (i32.add
          (i32.xor (i32.xor (i32.rotr (local.get $a) (i32.const 2)) (i32.rotr (local.get $a) (i32.const 13)))
                   (i32.rotr (local.get $a) (i32.const 22)))
          (i32.xor (i32.xor (i32.and (local.get $a) (local.get $b)) (i32.and (local.get $a) (local.get $c)))
                   (i32.and (local.get $b) (local.get $c)))))
      (local.set $h (local.get $g))
      (local.set $g (local.get $f))
      (local.set $f (local.get $e))
      (local.set $e (i32.add (local.get $d) (local.get $x)))
      (local.set $d (local.get $c))
      (local.set $c (local.get $b))
      (local.set $b (local.get $a))
      (local.set $a (i32.add (local.get $x) (local.get $y)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
    (call $add_to (i32.const 0x2a200) (local.get $a))
    (call $add_to (i32.const 0x2a204) (local.get $b))
    (call $add_to (i32.const 0x2a208) (local.get $c))
    (call $add_to (i32.const 0x2a20c) (local.get $d))
    (call $add_to (i32.const 0x2a210) (local.get $e))
    (call $add_to (i32.const 0x2a214) (local.get $f))
    (call $add_to (i32.const 0x2a218) (local.get $g))
    (call $add_to (i32.const 0x2a21c) (local.get $h)))

  (func $add_to (param $where i32) (param $n i32)
    (i32.store (local.get $where) (i32.add (i32.load (local.get $where)) (local.get $n))))

  ;; The state afterwards stands at 0x2a200, a word each.
  (func $sha256 (param $count i32)
    (local $end i32) (local $block i32)
    (i32.store (i32.const 0x2a200) (i32.const 0x6a09e667))
    (i32.store (i32.const 0x2a204) (i32.const 0xbb67ae85))
    (i32.store (i32.const 0x2a208) (i32.const 0x3c6ef372))
    (i32.store (i32.const 0x2a20c) (i32.const 0xa54ff53a))
    (i32.store (i32.const 0x2a210) (i32.const 0x510e527f))
    (i32.store (i32.const 0x2a214) (i32.const 0x9b05688c))
    (i32.store (i32.const 0x2a218) (i32.const 0x1f83d9ab))
    (i32.store (i32.const 0x2a21c) (i32.const 0x5be0cd19))
    (local.set $end (i32.add (i32.const 0x28000) (local.get $count)))
    (memory.fill (local.get $end) (i32.const 0) (i32.const 128))
    (i32.store8 (local.get $end) (i32.const 0x80))
    ;; A block ends with eight bytes of length.
    (local.set $end
      (i32.add (i32.const 0x28000)
        (i32.and (i32.add (local.get $count) (i32.const 72)) (i32.const -64))))
    (i32.store (i32.sub (local.get $end) (i32.const 4)) (call $turn (i32.shl (local.get $count) (i32.const 3))))
    (local.set $block (i32.const 0x28000))
    (loop $next
      (call $rounds (local.get $block))
      (local.set $block (i32.add (local.get $block) (i32.const 64)))
      (br_if $next (i32.lt_u (local.get $block) (local.get $end)))))

  ;; ---- Parameters: lines `key=value` ----

  ;; Finds value number `nth` of a key.
  (func $find (param $key i32) (param $nth i32) (result i32)
    (local $line i32) (local $end i32) (local $size i32)
    (local.set $size (call $size (local.get $key)))
    (local.set $line (i32.const 0x2000))
    (block $none (loop $next
      (br_if $none (i32.eqz (i32.load8_u (local.get $line))))
      (local.set $end (local.get $line))
      (block $ended (loop $more
        (br_if $none (i32.eqz (i32.load8_u (local.get $end))))
        (br_if $ended (i32.eq (i32.load8_u (local.get $end)) (i32.const 10)))
        (local.set $end (i32.add (local.get $end) (i32.const 1)))
        (br $more)))
      (if (i32.and
            (i32.eq (i32.load8_u (i32.add (local.get $line) (local.get $size))) (i32.const 61))
            (call $same (local.get $line) (local.get $key) (local.get $size)))
        (then
          (if (i32.eqz (local.get $nth))
            (then
              (global.set $value (i32.add (i32.add (local.get $line) (local.get $size)) (i32.const 1)))
              (global.set $length (i32.sub (local.get $end) (global.get $value)))
              (return (i32.const 1))))
          (local.set $nth (i32.sub (local.get $nth) (i32.const 1)))))
      (local.set $line (i32.add (local.get $end) (i32.const 1)))
      (br $next)))
    (i32.const 0))

  ;; The number that a key holds, or -1.
  (func $number (param $key i32) (result i64)
    (local $n i64) (local $i i32)
    (if (i32.eqz (call $find (local.get $key) (i32.const 0)))
      (then (return (i64.const -1))))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $i) (global.get $length)))
      (local.set $n
        (i64.add (i64.mul (local.get $n) (i64.const 10))
          (i64.extend_i32_u (i32.sub (i32.load8_u (i32.add (global.get $value) (local.get $i))) (i32.const 48)))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
    (local.get $n))

  ;; ---- Input and output ----

  (func $iovec (param $from i32) (param $count i32)
    (i32.store (i32.const 0x1000) (local.get $from))
    (i32.store (i32.const 0x1004) (local.get $count)))

  (func $write (param $fd i32) (param $from i32) (param $count i32)
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $count)))
      (call $iovec (local.get $from) (local.get $count))
      (br_if $done (call $fd_write (local.get $fd) (i32.const 0x1000) (i32.const 1) (i32.const 0x1010)))
      (local.set $from (i32.add (local.get $from) (i32.load (i32.const 0x1010))))
      (local.set $count (i32.sub (local.get $count) (i32.load (i32.const 0x1010))))
      (br $next))))

  ;; What can be read, up to so many bytes; how many there were.
  (func $read (param $fd i32) (param $to i32) (param $most i32) (result i32)
    (local $count i32)
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $count) (local.get $most)))
      (call $iovec (i32.add (local.get $to) (local.get $count)) (i32.sub (local.get $most) (local.get $count)))
      (br_if $done (call $fd_read (local.get $fd) (i32.const 0x1000) (i32.const 1) (i32.const 0x1010)))
      (br_if $done (i32.eqz (i32.load (i32.const 0x1010))))
      (local.set $count (i32.add (local.get $count) (i32.load (i32.const 0x1010))))
      (br $next)))
    (local.get $count))

  (func $errno (param $n i32) (result i32)
    (if (i32.eqz (local.get $n)) (then (return (i32.const 256 (; none ;)))))
    (if (i32.eq (local.get $n) (i32.const 2)) (then (return (i32.const 261 (; EACCES ;)))))
    (if (i32.eq (local.get $n) (i32.const 8)) (then (return (i32.const 268 (; EBADF ;)))))
    (if (i32.eq (local.get $n) (i32.const 28)) (then (return (i32.const 274 (; EINVAL ;)))))
    (if (i32.eq (local.get $n) (i32.const 31)) (then (return (i32.const 281 (; EISDIR ;)))))
    (if (i32.eq (local.get $n) (i32.const 32)) (then (return (i32.const 288 (; ELOOP ;)))))
    (if (i32.eq (local.get $n) (i32.const 44)) (then (return (i32.const 294 (; ENOENT ;)))))
    (if (i32.eq (local.get $n) (i32.const 48)) (then (return (i32.const 301 (; ENOMEM ;)))))
    (if (i32.eq (local.get $n) (i32.const 52)) (then (return (i32.const 308 (; ENOSYS ;)))))
    (if (i32.eq (local.get $n) (i32.const 54)) (then (return (i32.const 315 (; ENOTDIR ;)))))
    (if (i32.eq (local.get $n) (i32.const 57)) (then (return (i32.const 323 (; ENOTSOCK ;)))))
    (if (i32.eq (local.get $n) (i32.const 58)) (then (return (i32.const 332 (; EOPNOTSUPP ;)))))
    (if (i32.eq (local.get $n) (i32.const 63)) (then (return (i32.const 343 (; EPERM ;)))))
    (if (i32.eq (local.get $n) (i32.const 69)) (then (return (i32.const 349 (; EROFS ;)))))
    (if (i32.eq (local.get $n) (i32.const 75)) (then (return (i32.const 355 (; EXDEV ;)))))
    (i32.const 361 (; EPROTO ;)))

  ;; Says a line about a check, bound to the run by its proof, and begins a new detail.
  (func $line (param $check i32) (param $result i32) (param $errno i32) (param $twin i32)
    (local $i i32) (local $size i32)
    (if (i32.eq (global.get $detail) (i32.const 0x24000)) (then (call $say (i32.const 368 (; - ;)))))
    (local.set $size (i32.sub (global.get $detail) (i32.const 0x24000)))
    (global.set $at (i32.const 0x28000))
    (call $put (i32.const 370 (; containment-ledger/probe/v1 ;)))
    (if (call $find (i32.const 399 (; nonce ;)) (i32.const 0)) (then (call $bytes (global.get $value) (global.get $length))))
    (call $byte (i32.const 10))
    (call $put (global.get $control)) (call $byte (i32.const 47)) (call $put (local.get $check))
    (call $byte (i32.const 10))
    (call $put (local.get $result)) (call $byte (i32.const 10))
    (call $put (local.get $errno)) (call $byte (i32.const 10))
    (call $put (local.get $twin)) (call $byte (i32.const 10))
    (call $bytes (i32.const 0x24000) (local.get $size)) (call $byte (i32.const 10))
    (call $sha256 (i32.sub (global.get $at) (i32.const 0x28000)))
    (global.set $at (i32.const 0x26000))
    (call $put (i32.const 405 (; probe= ;))) (call $put (global.get $control))
    (call $put (i32.const 412 (; dimension= ;))) (call $put (global.get $control))
    (call $put (i32.const 424 (; check= ;))) (call $put (local.get $check))
    (call $put (i32.const 432 (; result= ;))) (call $put (local.get $result))
    (call $put (i32.const 441 (; errno= ;))) (call $put (local.get $errno))
    (call $put (i32.const 449 (; twin= ;))) (call $put (local.get $twin))
    (call $put (i32.const 456 (; nonce= ;)))
    ;; Sixteen bytes, of each word the highest first.
    (block $done (loop $next
      (br_if $done (i32.eq (local.get $i) (i32.const 32)))
      (call $hex_digit
        (i32.and
          (i32.shr_u
            (i32.load (i32.add (i32.const 0x2a200) (i32.and (i32.shr_u (local.get $i) (i32.const 1)) (i32.const 12))))
            (i32.sub (i32.const 28) (i32.shl (i32.and (local.get $i) (i32.const 7)) (i32.const 2))))
          (i32.const 15)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br $next)))
    (call $put (i32.const 464 (; detail= ;)))
    (call $bytes (i32.const 0x24000) (local.get $size)) (call $byte (i32.const 10))
    (call $write (i32.const 1) (i32.const 0x26000) (i32.sub (global.get $at) (i32.const 0x26000)))
    (global.set $detail (i32.const 0x24000)))

  (func $missing (param $check i32) (param $what i32)
    (global.set $detail (i32.const 0x24000))
    (call $say (i32.const 473 (; instrument-missing: no parameter ;)))
    (call $say (local.get $what))
    (call $line (local.get $check) (i32.const 507 (; error ;)) (i32.const 256 (; none ;)) (i32.const 256 (; none ;))))

  ;; The run's secret and a check, for whoever is reached.
  (func $greeting (param $check i32)
    (global.set $at (i32.const 0x2c000))
    (if (call $find (i32.const 399 (; nonce ;)) (i32.const 0)) (then (call $bytes (global.get $value) (global.get $length))))
    (call $byte (i32.const 32))
    (call $put (local.get $check))
    (call $byte (i32.const 10)))

  ;; ---- Attacks ----

  (func $begin
    (global.set $detail (i32.const 0x24000))
    (global.set $escaped (i32.const 0))
    (global.set $cause (i32.const 0))
    (global.set $tried (i32.const 0)))

  ;; Whether an error is one with which files are refused.
  (func $is_refusal (param $e i32) (result i32)
    (i32.or
      (i32.or (i32.eq (local.get $e) (i32.const 2)) (i32.eq (local.get $e) (i32.const 63)))
      (i32.or
        (i32.or (i32.eq (local.get $e) (i32.const 44)) (i32.eq (local.get $e) (i32.const 54)))
        (i32.or
          (i32.eq (local.get $e) (i32.const 32))
          (i32.or (i32.eq (local.get $e) (i32.const 69)) (i32.eq (local.get $e) (i32.const 75)))))))

  ;; An attempt failed: told is the first error that is no refusal, else the first.
  (func $refused (param $e i32)
    (global.set $tried (i32.add (global.get $tried) (i32.const 1)))
    (if (i32.or (i32.eqz (global.get $cause))
                (i32.and (call $is_refusal (global.get $cause)) (i32.eqz (call $is_refusal (local.get $e)))))
      (then (global.set $cause (local.get $e)))))

  (func $finish (param $check i32) (param $twin i32)
    (call $say (i32.const 513 (; ; ;)))
    (call $say_number (global.get $tried))
    (call $say (i32.const 516 (; attempts refused ;)))
    (if (global.get $escaped)
      (then (call $line (local.get $check) (i32.const 534 (; escaped ;)) (i32.const 256 (; none ;)) (local.get $twin)))
      (else (call $line (local.get $check) (i32.const 542 (; contained ;)) (call $errno (global.get $cause)) (local.get $twin)))))

  (func $open (param $folder i32) (param $path i32) (param $count i32) (param $how i32) (param $rights i64) (result i32)
    (local $e i32)
    ;; Links are followed.
    (local.set $e
      (call $path_open (local.get $folder) (i32.const 1) (local.get $path) (local.get $count) (local.get $how)
        (local.get $rights) (i64.const 0) (i32.const 0) (i32.const 0x1020)))
    (if (i32.eqz (local.get $e)) (then (global.set $file (i32.load (i32.const 0x1020)))))
    (local.get $e))

  (func $is_folder (param $fd i32) (result i32)
    (i32.eqz (call $fd_prestat_get (local.get $fd) (i32.const 0x1028))))

  ;; The path that is made: so many times `../`, something before it, then the path without its first slash.
  (func $way (param $before i32) (param $ups i32) (param $path i32) (param $count i32) (result i32)
    (global.set $at (i32.const 0x2c000))
    (call $put (local.get $before))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $ups)))
      (call $put (i32.const 552 (; ../ ;)))
      (local.set $ups (i32.sub (local.get $ups) (i32.const 1)))
      (br $next)))
    (call $bytes (i32.add (local.get $path) (i32.const 1)) (i32.sub (local.get $count) (i32.const 1)))
    (i32.sub (global.get $at) (i32.const 0x2c000)))

  ;; Tries to open a path of the host's from every folder: as it is, from there, and upward. 0 when it is open.
  (func $reach (param $path i32) (param $count i32) (param $how i32) (param $rights i64) (result i32)
    (local $fd i32) (local $e i32)
    (local.set $fd (i32.const 3))
    (block $none (loop $next
      (br_if $none (i32.eqz (call $is_folder (local.get $fd))))
      (local.set $e (call $open (local.get $fd) (local.get $path) (local.get $count) (local.get $how) (local.get $rights)))
      (if (i32.eqz (local.get $e)) (then (return (i32.const 0))))
      (call $refused (local.get $e))
      (local.set $e (call $open (local.get $fd) (i32.const 0x2c000)
        (call $way (i32.const 556 (; empty ;)) (i32.const 0) (local.get $path) (local.get $count)) (local.get $how) (local.get $rights)))
      (if (i32.eqz (local.get $e)) (then (return (i32.const 0))))
      (call $refused (local.get $e))
      (local.set $e (call $open (local.get $fd) (i32.const 0x2c000)
        (call $way (i32.const 556 (; empty ;)) (i32.const 16) (local.get $path) (local.get $count)) (local.get $how) (local.get $rights)))
      (if (i32.eqz (local.get $e)) (then (return (i32.const 0))))
      (call $refused (local.get $e))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br $next)))
    (i32.const 1))

  ;; Detours from every folder: through dots, and through a link upward with a slash, two, and a dot behind it, where one can be
  ;; made.
  (func $detour (param $path i32) (param $count i32) (result i32)
    (local $fd i32) (local $e i32)
    (local.set $fd (i32.const 3))
    (block $none (loop $next
      (br_if $none (i32.eqz (call $is_folder (local.get $fd))))
      (local.set $e (call $open (local.get $fd) (i32.const 0x2c000)
        (call $way (i32.const 557 (; ./.// ;)) (i32.const 16) (local.get $path) (local.get $count)) (i32.const 0) (i64.const 2)))
      (if (i32.eqz (local.get $e)) (then (return (i32.const 0))))
      (call $refused (local.get $e))
      (if (i32.eqz (call $path_symlink (i32.const 563 (; ../../../../../../../../../../../.. ;)) (i32.const 35) (local.get $fd)
            (i32.const 0x2d400) (global.get $own)))
        (then
          (call $say (i32.const 599 (; by a link; ;)))
          (local.set $e (call $linked (local.get $fd) (local.get $path) (local.get $count)))
          (drop (call $path_unlink_file (local.get $fd) (i32.const 0x2d400) (global.get $own)))
          (if (i32.eqz (local.get $e)) (then (return (i32.const 0))))))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br $next)))
    (i32.const 1))

  (func $linked (param $fd i32) (param $path i32) (param $count i32) (result i32)
    (local $e i32)
    (local.set $e (call $open (local.get $fd) (i32.const 0x2c000)
      (call $way (i32.const 0x2d500) (i32.const 0) (local.get $path) (local.get $count)) (i32.const 0) (i64.const 2)))
    (if (i32.eqz (local.get $e)) (then (return (i32.const 0))))
    (call $refused (local.get $e))
    (local.set $e (call $open (local.get $fd) (i32.const 0x2c000)
      (call $way (i32.const 0x2d600) (i32.const 0) (local.get $path) (local.get $count)) (i32.const 0) (i64.const 2)))
    (if (i32.eqz (local.get $e)) (then (return (i32.const 0))))
    (call $refused (local.get $e))
    ;; The link alone, with a slash: a folder that the path is then looked for in.
    (local.set $e (call $open (local.get $fd) (i32.const 0x2d500)
      (i32.add (global.get $own) (i32.const 1)) (i32.const 2) (i64.const 0x4000)))
    (if (local.get $e)
      (then (call $refused (local.get $e)) (return (local.get $e))))
    (local.set $e (call $open (global.get $file) (i32.const 0x2c000)
      (call $way (i32.const 556 (; empty ;)) (i32.const 0) (local.get $path) (local.get $count)) (i32.const 0) (i64.const 2)))
    (if (local.get $e) (then (call $refused (local.get $e))))
    (local.get $e))

  ;; The beginning of the file that was opened last, in the detail; of a key never its text.
  (func $show
    (local $count i32)
    (local.set $count (call $read (global.get $file) (i32.const 0x2b000) (i32.const 256)))
    (drop (call $fd_close (global.get $file)))
    (if (i32.and (i32.gt_u (local.get $count) (i32.const 4))
                 (i32.eq (i32.load (i32.const 0x2b000)) (i32.const 0x2d2d2d2d)))
      (then (call $say (i32.const 611 (; a private key ;))))
      (else (call $note (i32.const 0x2b000) (local.get $count))))
    (call $say (i32.const 625 (; empty ;))))

  ;; Opens the allowed file from the folder with the longest name that it lies in.
  (func $open_allowed (param $how i32) (param $rights i64) (result i32)
    (local $fd i32) (local $size i32) (local $best i32) (local $most i32)
    (if (i32.eqz (call $find (i32.const 627 (; allowed ;)) (i32.const 0))) (then (return (i32.const 44))))
    (local.set $fd (i32.const 3))
    (block $done (loop $next
      (br_if $done (i32.eqz (call $is_folder (local.get $fd))))
      (local.set $size (i32.load (i32.const 0x102c)))
      (if (i32.and (i32.lt_u (local.get $size) (global.get $length)) (i32.gt_u (local.get $size) (local.get $most)))
        (then
          (drop (call $fd_prestat_dir_name (local.get $fd) (i32.const 0x2d800) (local.get $size)))
          (if (call $same (i32.const 0x2d800) (global.get $value) (local.get $size))
            (then (local.set $best (local.get $fd)) (local.set $most (local.get $size))))))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br $next)))
    (if (i32.eqz (local.get $best)) (then (return (i32.const 44))))
    ;; Behind a name that is more than a slash there is another one.
    (call $open (local.get $best) (i32.const 0x2c000)
      (call $way (i32.const 556 (; empty ;)) (i32.const 0)
        (i32.add (global.get $value) (select (local.get $most) (i32.const 0) (i32.gt_u (local.get $most) (i32.const 1))))
        (i32.sub (global.get $length) (select (local.get $most) (i32.const 0) (i32.gt_u (local.get $most) (i32.const 1)))))
      (local.get $how) (local.get $rights)))

  ;; The twin of whoever reads.
  (func $allowed (result i32)
    (if (call $open_allowed (i32.const 0) (i64.const 2)) (then (return (i32.const 635 (; failed ;)))))
    (call $say (i32.const 642 (; allowed= ;)))
    (call $show)
    (i32.const 651 (; ok ;)))

  (func $files (param $check i32) (param $key i32)
    (local $nth i32) (local $twin i32)
    (call $begin)
    (if (i32.eqz (call $find (local.get $key) (i32.const 0)))
      (then (call $missing (local.get $check) (local.get $key)) (return)))
    (local.set $twin (call $allowed))
    (block $done (loop $next
      (br_if $done (i32.eqz (call $find (local.get $key) (local.get $nth))))
      (if (i32.eqz (call $reach (global.get $value) (global.get $length) (i32.const 0) (i64.const 2)))
        (then (global.set $escaped (i32.const 1)) (call $show)))
      (local.set $nth (i32.add (local.get $nth) (i32.const 1)))
      (br $next)))
    (call $finish (local.get $check) (local.get $twin)))

  (func $traversal
    (local $nth i32) (local $twin i32)
    (call $begin)
    (if (i32.eqz (call $find (i32.const 654 (; read ;)) (i32.const 0)))
      (then (call $missing (i32.const 659 (; traversal ;)) (i32.const 654 (; read ;))) (return)))
    (local.set $twin (call $allowed))
    (block $done (loop $next
      (br_if $done (i32.eqz (call $find (i32.const 654 (; read ;)) (local.get $nth))))
      (if (i32.eqz (call $detour (global.get $value) (global.get $length)))
        (then (global.set $escaped (i32.const 1)) (call $show))
        (else
          (if (call $find (i32.const 654 (; read ;)) (local.get $nth))
            (then
              (if (i32.eqz (call $reach (global.get $value) (global.get $length) (i32.const 0) (i64.const 2)))
                (then (global.set $escaped (i32.const 1)) (call $show)))))))
      (local.set $nth (i32.add (local.get $nth) (i32.const 1)))
      (br $next)))
    (call $finish (i32.const 659 (; traversal ;)) (local.get $twin)))

  ;; The names in the folder that was opened last; whether there are any.
  (func $list (result i32)
    (local $entry i32) (local $end i32) (local $size i32) (local $any i32)
    (if (call $fd_readdir (global.get $file) (i32.const 0x12000) (i32.const 0x1000) (i64.const 0) (i32.const 0x1030))
      (then (return (i32.const 0))))
    (drop (call $fd_close (global.get $file)))
    (local.set $entry (i32.const 0x12000))
    (local.set $end (i32.add (local.get $entry) (i32.load (i32.const 0x1030))))
    (block $done (loop $next
      (br_if $done (i32.gt_u (i32.add (local.get $entry) (i32.const 24)) (local.get $end)))
      (local.set $size (i32.load offset=16 (local.get $entry)))
      (local.set $entry (i32.add (local.get $entry) (i32.const 24)))
      (br_if $done (i32.gt_u (i32.add (local.get $entry) (local.get $size)) (local.get $end)))
      (if (i32.ne (i32.load8_u (local.get $entry)) (i32.const 46))
        (then
          (local.set $any (i32.const 1))
          (call $note (local.get $entry) (local.get $size))
          (call $say (i32.const 625 (; empty ;)))))
      (local.set $entry (i32.add (local.get $entry) (local.get $size)))
      (br $next)))
    (local.get $any))

  (func $tree
    (local $nth i32) (local $twin i32)
    (call $begin)
    (if (i32.eqz (call $find (i32.const 669 (; tree ;)) (i32.const 0)))
      (then (call $missing (i32.const 669 (; tree ;)) (i32.const 669 (; tree ;))) (return)))
    (local.set $twin (call $allowed))
    (block $done (loop $next
      (br_if $done (i32.eqz (call $find (i32.const 669 (; tree ;)) (local.get $nth))))
      (if (i32.eqz (call $reach (global.get $value) (global.get $length) (i32.const 2) (i64.const 0x4000)))
        (then (if (call $list) (then (global.set $escaped (i32.const 1))))))
      (local.set $nth (i32.add (local.get $nth) (i32.const 1)))
      (br $next)))
    (call $finish (i32.const 669 (; tree ;)) (local.get $twin)))

  ;; What opened although it is shown read-only.
  (func $opened_read_only (param $how i32) (param $rights i64)
    (local $e i32)
    (local.set $e (call $open_allowed (local.get $how) (local.get $rights)))
    (if (local.get $e)
      (then (call $refused (local.get $e)))
      (else
        (drop (call $fd_close (global.get $file)))
        (global.set $escaped (i32.const 1))
        (call $say (i32.const 674 (; the read-only file opened ;))))))

  ;; The twin of whoever writes: a file can be made, and removed, in some folder.
  (func $can_write (result i32)
    (local $fd i32)
    (local.set $fd (i32.const 3))
    (block $none (loop $next
      (br_if $none (i32.eqz (call $is_folder (local.get $fd))))
      (if (i32.eqz (call $open (local.get $fd) (i32.const 0x2d400) (global.get $own) (i32.const 5) (i64.const 64)))
        (then
          (drop (call $fd_close (global.get $file)))
          (if (i32.eqz (call $path_unlink_file (local.get $fd) (i32.const 0x2d400) (global.get $own)))
            (then (return (i32.const 651 (; ok ;)))))))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br $next)))
    (i32.const 635 (; failed ;)))

  ;; Whoever gets hold of a canary by a folder says so in it, and moves it.
  (func $change (param $nth i32)
    (local $fd i32) (local $e i32)
    (if (i32.eqz (call $find (i32.const 701 (; write ;)) (local.get $nth))) (then (return)))
    (if (i32.eqz (call $reach (global.get $value) (global.get $length) (i32.const 0) (i64.const 66)))
      (then
        (global.set $escaped (i32.const 1))
        (call $say (i32.const 707 (; opened ;)))
        (call $greeting (i32.const 715 (; filesystem/write ;)))
        (call $write (global.get $file) (i32.const 0x2c000) (i32.sub (global.get $at) (i32.const 0x2c000)))
        (drop (call $fd_close (global.get $file)))
        (return)))
    (if (i32.eqz (call $reach (global.get $value) (global.get $length) (i32.const 8) (i64.const 2)))
      (then
        (global.set $escaped (i32.const 1))
        (call $say (i32.const 732 (; truncated ;)))
        (drop (call $fd_close (global.get $file)))))
    (local.set $fd (i32.const 3))
    (block $none (loop $next
      (br_if $none (i32.eqz (call $is_folder (local.get $fd))))
      (local.set $e (call $path_unlink_file (local.get $fd) (i32.const 0x2c000)
        (call $way (i32.const 556 (; empty ;)) (i32.const 16) (global.get $value) (global.get $length))))
      (if (local.get $e)
        (then (call $refused (local.get $e)))
        (else (global.set $escaped (i32.const 1)) (call $say (i32.const 743 (; unlinked ;)))))
      (local.set $e (call $path_rename (local.get $fd) (i32.const 0x2c000)
        (call $way (i32.const 556 (; empty ;)) (i32.const 16) (global.get $value) (global.get $length)) (local.get $fd) (i32.const 0x2d400) (global.get $own)))
      (if (local.get $e)
        (then (call $refused (local.get $e)))
        (else (global.set $escaped (i32.const 1)) (call $say (i32.const 753 (; renamed ;)))))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br $next))))

  (func $writing
    (local $nth i32)
    (call $begin)
    (if (i32.eqz (call $find (i32.const 701 (; write ;)) (i32.const 0)))
      (then (call $missing (i32.const 701 (; write ;)) (i32.const 701 (; write ;))) (return)))
    (call $opened_read_only (i32.const 0) (i64.const 64))
    (call $opened_read_only (i32.const 8) (i64.const 2))
    (call $opened_read_only (i32.const 8) (i64.const 66))
    (block $done (loop $next
      (br_if $done (i32.eqz (call $find (i32.const 701 (; write ;)) (local.get $nth))))
      (call $change (local.get $nth))
      (local.set $nth (i32.add (local.get $nth) (i32.const 1)))
      (br $next)))
    (call $finish (i32.const 701 (; write ;)) (call $can_write)))

  ;; Opened, never written.
  (func $knob (param $path i32)
    (if (i32.eqz (call $reach (local.get $path) (call $size (local.get $path)) (i32.const 0) (i64.const 64)))
      (then
        (drop (call $fd_close (global.get $file)))
        (global.set $escaped (i32.const 1))
        (call $say (local.get $path))
        (call $say (i32.const 762 (; opened ;))))))

  ;; What this run makes has the run's own name, so that what a killed one leaves is found and removed: alone at 0x2d400, with a
  ;; slash behind it at 0x2d500, with two at 0x2d600, each ended by a zero byte.
  (func $name
    (global.set $at (i32.const 0x2d400))
    (if (i32.and (call $find (i32.const 771 (; mark ;)) (i32.const 0)) (i32.lt_u (global.get $length) (i32.const 128)))
      (then (call $bytes (global.get $value) (global.get $length)))
      (else (call $put (i32.const 776 (; containment-probe ;)))))
    (global.set $own (i32.sub (global.get $at) (i32.const 0x2d400)))
    (call $byte (i32.const 0))
    (global.set $at (i32.const 0x2d500))
    (call $put (i32.const 0x2d400)) (call $put (i32.const 794 (; / ;))) (call $byte (i32.const 0))
    (global.set $at (i32.const 0x2d600))
    (call $put (i32.const 0x2d400)) (call $put (i32.const 796 (; // ;))) (call $byte (i32.const 0)))

  (func $filesystem
    (local $twin i32)
    (call $name)
    (call $files (i32.const 654 (; read ;)) (i32.const 654 (; read ;)))
    (call $tree)
    (call $writing)
    (call $traversal)
    (call $files (i32.const 799 (; evidence ;)) (i32.const 799 (; evidence ;)))
    (call $begin)
    (local.set $twin (call $allowed))
    (call $knob (i32.const 808 (; /proc/sys/kernel/core_pattern ;)))
    (call $knob (i32.const 838 (; /proc/sys/kernel/modprobe ;)))
    (call $knob (i32.const 864 (; /proc/sysrq-trigger ;)))
    (call $finish (i32.const 884 (; knobs ;)) (local.get $twin)))

  ;; Every function that moves bytes by a socket, on every number that could be one. There is none that makes or connects one.
  (func $socket (param $check i32)
    (local $fd i32) (local $e i32)
    (call $begin)
    (call $greeting (local.get $check))
    (block $done (loop $next
      (br_if $done (i32.eq (local.get $fd) (i32.const 256)))
      (call $iovec (i32.const 0x2c000) (i32.sub (global.get $at) (i32.const 0x2c000)))
      (call $sent (call $sock_send (local.get $fd) (i32.const 0x1000) (i32.const 1) (i32.const 0) (i32.const 0x1010)))
      (call $sent (call $sock_accept (local.get $fd) (i32.const 0) (i32.const 0x1010)))
      (call $iovec (i32.const 0x2b000) (i32.const 64))
      (call $sent (call $sock_recv (local.get $fd) (i32.const 0x1000) (i32.const 1) (i32.const 0)
        (i32.const 0x1010) (i32.const 0x1018)))
      (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
      (br $next)))
    (call $say (i32.const 890 (; sock_send, sock_accept and sock_recv on 256 numbers; no function makes or connects a socket ;)))
    (call $finish (local.get $check) (i32.const 651 (; ok ;))))

  ;; Not open, or no socket.
  (func $sent (param $e i32)
    (if (i32.eqz (local.get $e))
      (then (global.set $escaped (i32.const 1)) (call $say (i32.const 982 (; moved bytes ;))))
      (else
        (global.set $tried (i32.add (global.get $tried) (i32.const 1)))
        (if (i32.or (i32.eqz (global.get $cause)) (i32.ne (local.get $e) (i32.const 8)))
          (then
            (if (i32.or (i32.eqz (global.get $cause))
                        (i32.or (i32.eq (global.get $cause) (i32.const 8)) (i32.eq (global.get $cause) (i32.const 57))))
              (then (global.set $cause (local.get $e)))))))))

  (func $network
    (call $socket (i32.const 995 (; tcp4 ;)))
    (call $socket (i32.const 1000 (; tcp6 ;)))
    (call $socket (i32.const 1005 (; udp ;)))
    (call $socket (i32.const 1009 (; udp6 ;)))
    (call $socket (i32.const 1014 (; path ;)))
    (call $socket (i32.const 1019 (; dns ;))))

  ;; The variable whose name, or name and value, is this: where what follows begins, or 0.
  (func $variable (param $name i32) (param $count i32) (result i32)
    (local $nth i32) (local $text i32)
    (block $none (loop $next
      (br_if $none (i32.ge_u (local.get $nth) (i32.load (i32.const 0x1040))))
      (local.set $text (i32.load (i32.add (i32.const 0x12000) (i32.shl (local.get $nth) (i32.const 2)))))
      (if (call $same (local.get $text) (local.get $name) (local.get $count))
        (then (return (i32.add (local.get $text) (local.get $count)))))
      (local.set $nth (i32.add (local.get $nth) (i32.const 1)))
      (br $next)))
    (i32.const 0))

  (func $environment
    (local $nth i32) (local $text i32) (local $twin i32)
    (call $begin)
    (if (i32.eqz (call $find (i32.const 1023 (; absent ;)) (i32.const 0)))
      (then (call $missing (i32.const 1030 (; inherited ;)) (i32.const 1023 (; absent ;))) (return)))
    (drop (call $environ_sizes_get (i32.const 0x1040) (i32.const 0x1044)))
    (if (i32.or (i32.gt_u (i32.load (i32.const 0x1040)) (i32.const 1024))
                (i32.gt_u (i32.load (i32.const 0x1044)) (i32.const 0x10000)))
      (then (call $missing (i32.const 1030 (; inherited ;)) (i32.const 1040 (; that fits ;))) (return)))
    (drop (call $environ_get (i32.const 0x12000) (i32.const 0x13000)))
    (local.set $twin (i32.const 256 (; none ;)))
    (if (call $find (i32.const 1050 (; present ;)) (i32.const 0))
      (then
        (local.set $text (call $variable (global.get $value) (global.get $length)))
        (local.set $twin (i32.const 635 (; failed ;)))
        (if (local.get $text)
          (then
            (if (i32.eqz (i32.load8_u (local.get $text)))
              (then
                (local.set $twin (i32.const 651 (; ok ;)))
                (call $note (global.get $value) (global.get $length))))))))
    (block $done (loop $next
      (br_if $done (i32.eqz (call $find (i32.const 1023 (; absent ;)) (local.get $nth))))
      (local.set $text (call $variable (global.get $value) (global.get $length)))
      (if (local.get $text)
        (then
          (if (i32.eq (i32.load8_u (local.get $text)) (i32.const 61))
            (then
              (global.set $escaped (i32.const 1))
              (call $say (local.get $text))))))
      (global.set $tried (i32.add (global.get $tried) (i32.const 1)))
      (local.set $nth (i32.add (local.get $nth) (i32.const 1)))
      (br $next)))
    (call $finish (i32.const 1030 (; inherited ;)) (local.get $twin)))

  ;; Grows by so many bytes and writes to every page; whether that could be had.
  (func $touch (param $bytes i64) (result i32)
    (local $at i32) (local $end i32) (local $old i32)
    (local.set $old (memory.grow (i32.wrap_i64 (i64.shr_u (local.get $bytes) (i64.const 16)))))
    (if (i32.eq (local.get $old) (i32.const -1)) (then (return (i32.const 0))))
    (local.set $at (i32.shl (local.get $old) (i32.const 16)))
    (local.set $end (i32.shl (memory.size) (i32.const 16)))
    (block $done (loop $next
      (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
      (i32.store (local.get $at) (local.get $at))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br $next)))
    (i32.const 1))

  ;; Half of what there is can be had, twice as much cannot.
  (func $memory
    (local $bytes i64) (local $twin i32)
    (call $begin)
    (local.set $bytes (call $number (i32.const 1058 (; bytes ;))))
    (if (i64.gt_u (local.get $bytes) (i64.const 0x10000000))
      (then (call $missing (i32.const 1064 (; touch ;)) (i32.const 1070 (; bytes, of 256 MiB at most ;))) (return)))
    (local.set $twin
      (select (i32.const 651 (; ok ;)) (i32.const 635 (; failed ;)) (call $touch (i64.shr_u (local.get $bytes) (i64.const 1)))))
    (call $say (i32.const 1096 (; half of the limit, then twice as much ;)))
    (if (call $touch (i64.add (local.get $bytes) (i64.shr_u (local.get $bytes) (i64.const 1))))
      (then (global.set $escaped (i32.const 1)))
      (else (call $refused (i32.const 48))))
    (call $finish (i32.const 1064 (; touch ;)) (local.get $twin)))

  (func $timeout
    (local $millis i64)
    (call $begin)
    (local.set $millis (call $number (i32.const 1134 (; millis ;))))
    (if (i64.gt_u (local.get $millis) (i64.const 60000))
      (then (call $missing (i32.const 1141 (; deadline ;)) (i32.const 1150 (; millis, of 60000 at most ;))) (return)))
    (call $say (i32.const 1175 (; a module goes on ;)))
    (call $line (i32.const 1141 (; deadline ;)) (i32.const 542 (; contained ;)) (i32.const 256 (; none ;)) (i32.const 651 (; ok ;)))
    ;; Counted in steps of its own: a machine that is busy keeps whoever is to end it as long.
    (memory.fill (i32.const 0x1080) (i32.const 0) (i32.const 96))
    (i32.store (i32.const 0x1090) (i32.const 1))
    (i64.store (i32.const 0x1098) (i64.const 20000000))
    (block $done (loop $next
      (br_if $done (i64.le_s (local.get $millis) (i64.const 0)))
      (drop (call $poll_oneoff (i32.const 0x1080) (i32.const 0x10c0) (i32.const 1) (i32.const 0x1010)))
      (local.set $millis (i64.sub (local.get $millis) (i64.const 20)))
      (br $next)))
    (call $greeting (i32.const 1192 (; timeout/outlived ;)))
    (call $write (i32.const 1) (i32.const 0x2c000) (i32.sub (global.get $at) (i32.const 0x2c000))))

  (func $output
    (local $bytes i64) (local $now i32)
    (call $begin)
    (local.set $bytes (call $number (i32.const 1058 (; bytes ;))))
    (if (i64.gt_u (local.get $bytes) (i64.const 0x4000000))
      (then (call $missing (i32.const 1209 (; cap ;)) (i32.const 1213 (; bytes, of 64 MiB at most ;))) (return)))
    (call $say (i32.const 1238 (; more follows on standard error ;)))
    (call $line (i32.const 1209 (; cap ;)) (i32.const 542 (; contained ;)) (i32.const 256 (; none ;)) (i32.const 651 (; ok ;)))
    (memory.fill (i32.const 0x30000) (i32.const 46) (i32.const 0x10000))
    (block $done (loop $next
      (br_if $done (i64.eqz (local.get $bytes)))
      (local.set $now
        (select (i32.wrap_i64 (local.get $bytes)) (i32.const 0x10000) (i64.lt_u (local.get $bytes) (i64.const 0x10000))))
      (call $write (i32.const 2) (i32.const 0x30000) (local.get $now))
      (local.set $bytes (i64.sub (local.get $bytes) (i64.extend_i32_u (local.get $now))))
      (br $next))))

  (func $is (param $name i32) (result i32)
    (call $same (global.get $control) (local.get $name) (i32.add (call $size (local.get $name)) (i32.const 1))))

  (func (export "_start")
    ;; One that is read to its end is ended by a zero byte.
    (drop (call $read (i32.const 0) (i32.const 0x2000) (i32.const 0xffff)))
    (drop (call $args_get (i32.const 0x2d000) (i32.const 0x2d100)))
    (global.set $control (i32.load (i32.const 0x2d004)))
    (if (i32.eqz (global.get $control)) (then (return)))
    (if (call $is (i32.const 1269 (; network ;))) (then (call $network)))
    (if (call $is (i32.const 1277 (; filesystem ;))) (then (call $filesystem)))
    (if (call $is (i32.const 1288 (; environment ;))) (then (call $environment)))
    (if (call $is (i32.const 1300 (; memory ;))) (then (call $memory)))
    (if (call $is (i32.const 1307 (; timeout ;))) (then (call $timeout)))
    (if (call $is (i32.const 1315 (; output ;))) (then (call $output)))))
