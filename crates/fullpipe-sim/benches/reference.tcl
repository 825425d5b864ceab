# ns-2's TCP/Linux with CUBIC over one bottleneck of 100 ms: rate, queue in packets, flows and seconds as told, as in the case of that name.
# Writes the data packets sent to standard error: to standard output ns-2 writes by itself, in the midst of what is ours.
lassign $argv rate queue flows seconds
set ns [new Simulator]
set a [$ns node]
set b [$ns node]
$ns duplex-link $a $b $rate 50ms DropTail
$ns queue-limit $a $b $queue
$ns queue-limit $b $a 1000000
for {set i 0} {$i < $flows} {incr i} {
    set tcp [new Agent/TCP/Linux]
    $tcp set timestamps_ true
    $tcp set window_ 1000000
    $tcp set windowInit_ 10
    $tcp set packetSize_ 1448
    $ns at 0 "$tcp select_ca cubic"
    set sink [new Agent/TCPSink/Sack1/DelAck]
    $sink set ts_echo_rfc1323_ true
    $ns attach-agent $a $tcp
    $ns attach-agent $b $sink
    $ns connect $tcp $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp
    $ns at 0 "$ftp start"
    lappend senders $tcp
}
proc finish {} {
    global senders
    set packets 0
    foreach tcp $senders { incr packets [$tcp set ndatapack_] }
    puts stderr $packets
    exit 0
}
$ns at $seconds finish
$ns run
