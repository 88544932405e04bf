# Counts the tests in a meson test log: those that Criterion and unittest report one by one, and each other program as one.
# Prints what failed, then "N passed, N failed"; exits 1 when something failed or nothing ran.
function close_program() {
    if (name == "") return
    if (result ~ /exit status 0/ && !failing) {
        passed += tested ? tested : 1
    } else if (result ~ /exit status 77/) {
        skipped++
    } else {
        bad = failing ? failing : 1
        failed += bad
        passed += tested > bad ? tested - bad : 0
        print "failed: " name " (" result ")"
    }
    name = ""
}
/^test: / { close_program(); name = $2; result = "no result"; tested = failing = 0 }
/^result: / { sub(/^result: */, ""); result = $0 }
/Synthesis: Tested: / {
    for (i = 1; i < NF; i++) {
        if ($i == "Tested:") tested += $(i + 1)
        if ($i == "Failing:" || $i == "Crashing:") failing += $(i + 1)
    }
}
/^Ran [0-9]+ tests? in / { tested += $2 }
/^FAILED \(/ {
    gsub(/[^0-9]+/, " ")
    for (i = 1; i <= NF; i++) failing += $i
}
END {
    close_program()
    if (skipped) print skipped " skipped"
    printf "%d passed, %d failed\n", passed, failed
    exit failed > 0 || passed == 0
}
