# ns-2's TCP/Linux with CUBIC on 100 Mbit/s, 100 ms, one BDP of queue, 60 s: the same as the first case.
# Prints the data packets sent.
set ns [new Simulator]
set a [$ns node]
set b [$ns node]
$ns duplex-link $a $b [lindex $argv 0] 50ms DropTail
$ns queue-limit $a $b [lindex $argv 1]
$ns queue-limit $b $a 100000
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
$ns at 60 "puts \[$tcp set ndatapack_\]; exit 0"
$ns run
