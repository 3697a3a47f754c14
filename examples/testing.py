"""Runs the Python tests of this folder so that ./test can count them as it counts Rust's."""
import sys
import unittest


class _Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"SKIPPED: {test.id()}: {reason}", file=sys.stderr)


def main():
    """Ends with libtest's line; every skipped test has said its reason on stderr."""
    program = unittest.main(module="__main__", exit=False, verbosity=2, argv=sys.argv[:1],
                            testRunner=unittest.TextTestRunner(resultclass=_Result, verbosity=2))
    result = program.result
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    print(f"test result: {'FAILED' if failed else 'ok'}. {result.passed} passed; {failed} failed; 0 ignored")
    sys.exit(1 if failed or result.testsRun == 0 else 0)
