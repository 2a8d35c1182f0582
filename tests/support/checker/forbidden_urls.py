"""A corpus of URLs that must never be called about a transaction, by the reason that refuses them, even where every address is listed.

Forms are those with which filters against request forgery have been passed: other spellings of 127.0.0.1 and of metadata addresses, IPv6 forms
that hold an IPv4 address, what parsers read differently, and what is no http URL at all.
"""

# With this list only the spelling or the kind of address can refuse; all names are below example.com, or localhost.
EVERYTHING = "0.0.0.0/0:*,[::/0]:*,*.example.com:*,example.com:*,localhost:*"

# fmt: off
FORBIDDEN: dict[str, list[str]] = {
    "does not begin with https:// or http://": [
        "", "/", "//a.example.com/", "a.example.com", "a.example.com/path", "a.example.com:443", "https", "https:",
        "https:/a.example.com/", "https:a.example.com", ":https://a.example.com", "://a.example.com",
        "ftp://a.example.com/", "ftps://a.example.com/", "file:///etc/passwd", "file://localhost/etc/passwd",
        "gopher://127.0.0.1:6379/_INFO", "dict://127.0.0.1:11211/stat", "ldap://127.0.0.1/", "tftp://127.0.0.1/x",
        "ws://a.example.com/", "wss://a.example.com/", "unix:///run/docker.sock", "http+unix://%2Frun%2Fd.sock/x",
        "data:text/plain,hello", "javascript:alert(1)", "jar:https://a.example.com!/x", "netdoc:///etc/passwd",
        "httpss://a.example.com/", "xhttps://a.example.com/", "https+x://a.example.com/",
        "view-source:https://a.example.com", "mailto:a@example.com", "smb://127.0.0.1/share", "ssh://127.0.0.1/",
        "url:https://a.example.com/",
    ],
    "names no host": [
        "https://", "https:///", "https:///a.example.com/", "https://:443/", "https://?x=1", "http:///127.0.0.1/",
        "http:///", "https://::1/",
    ],
    "spaces, control characters or backslashes": [
        " https://a.example.com/", "https://a.example.com/ ", "https://a.example .com/", "https:// a.example.com/",
        "https://a.example.com\r\nHost: evil/", "https://a.example.com/\r\nX: y", "https://a.example.com/\nX: y",
        "https://a.example.com/\x00", "https://a.example.com\x00.evil/", "https://a.example.com\t/",
        "\thttps://a.example.com/", "https://a.example.com/\x7f", "https://a.example.com\\@127.0.0.1/",
        "https:\\\\a.example.com\\", "https://\\a.example.com/", "https://127.0.0.1\\.a.example.com/",
        "ht\ntps://a.example.com/", "https:/\r/a.example.com/", "https://a.example.com/\x0b",
    ],
    "outside ASCII": [
        "https://\u2460\u2461\u2466.0.0.1/", "https://\uff11\uff12\uff17.0.0.1/", "https://\u0661\u0662\u0667.0.0.1/",
        "https://127\u30020\u30020\u30021/", "https://127\uff0e0\uff0e0\uff0e1/", "https://127\uff610\uff610\uff611/",
        "https://\u24d4xample.com/", "https://\u212aexample.com/", "https://b\xfccher.example.com/",
        "https://a.example.com/\xe9", "https://a.example.com\u2044x/", "https://a.example.com\uff0fx/",
        "https://a.example.com\u2048evil/", "https\uff1a//a.example.com/", "https://a.example\u200b.com/",
        "https://a\xadb.example.com/", "https://\ufeffa.example.com/", "https://a.example.com\u2028/",
        "https://\U0001d7ed\U0001d7ee\U0001d7f3.0.0.1/", "https://169.254.169.25\u2463/", "https://[::\u0661]/",
        "https://a.example.com:\uff18\uff10/",
    ],
    "user name or a password": [
        "https://user@a.example.com/", "https://user:word@a.example.com/", "https://@a.example.com/",
        "https://:@a.example.com/", "https://a.example.com@127.0.0.1/", "https://a.example.com:443@127.0.0.1/",
        "https://127.0.0.1@a.example.com/", "https://a.example.com&@127.0.0.1/", "https://a.example.com%40@127.0.0.1/",
        "https://x@@a.example.com/", "https://a@b@c.example.com/",
    ],
    "a fragment": [
        "https://a.example.com/#x", "https://a.example.com#@127.0.0.1/", "https://a.example.com#",
        "https://127.0.0.1#.example.com/",
    ],
    "an escape or a zone": [
        "https://127%2e0%2e0%2e1/", "https://%31%32%37.0.0.1/", "https://a.example%2ecom/", "https://a.example.com%00/",
        "https://a.example.com%0d%0aX:y/", "https://%6cocalhost/", "https://a.example.com%2f/",
        "https://localhost%23.example.com/",
    ],
    "ends with a dot": [
        "https://a.example.com./", "https://localhost./", "https://127.0.0.1./", "https://169.254.169.254.:80/",
        "https://./", "https://example.com../",
    ],
    "no IPv4 address of four decimal numbers": [
        "https://2130706433/", "https://3232235521/", "https://2852039166/", "https://0/", "https://1/",
        "https://4294967295/", "https://4294967296/", "https://017700000001/", "https://0177.0.0.1/",
        "https://0177.0.0.01/", "https://0177.0000.0000.0001/", "https://00000177.0.0.1/", "https://127.0.0.01/",
        "https://127.0.00.1/", "https://010.0.0.1/", "https://0x7f000001/", "https://0x7f.0x0.0x0.0x1/",
        "https://0x7f.0.0.1/", "https://0X7F.0.0.1/", "https://127.0.0.0x1/", "https://0x7f.1/", "https://127.1/",
        "https://127.0.1/", "https://127.65535/", "https://10.1/", "https://192.168.257/", "https://0x/",
        "https://127.0x/", "https://127.0.0.1.1/", "https://1.2.3.4.5/", "https://256.0.0.1/", "https://127.0.0.256/",
        "https://999.1.1.1/", "https://0251.0376.0251.0376/", "https://0xa9.0xfe.0xa9.0xfe/", "https://0xa9fea9fe/",
        "https://169.254.43518/", "https://169.16689662/", "https://127..0.1/", "https://.127.0.0.1/",
        "https://a.example.127/", "https://a.example.0x7f/", "https://0x7f000001.0x1/",
    ],
    "is no IPv6 address": [
        "https://[]/", "https://[127.0.0.1]/", "https://[localhost]/", "https://[::1::]/", "https://[:::1]/",
        "https://[::g]/", "https://[v1.x]/", "https://[1:2:3:4:5:6:7]/", "https://[1:2:3:4:5:6:7:8:9]/",
        "https://[::12345]/", "https://[::1.2.3]/", "https://[::0x7f.0.0.1]/", "https://[::ffff:0177.0.0.1]/",
        "https://[0:0:0:0:0:ffff:127.1]/", "https://[[::1]/",
    ],
    "is not written as [address]": [
        "https://[::1/", "https://[::1]x/", "https://[::1].example.com/", "https://[::1]]/", "https://[::1",
        "https://[::1]80/",
    ],
    "has a zone": [
        "https://[fe80::1%25eth0]/", "https://[fe80::1%eth0]/", "https://[::1%251]/", "https://[fe80::1%25]/",
        "https://[::1%lo]/",
    ],
    "is no port": [
        "https://a.example.com:0/", "https://a.example.com:65536/", "https://a.example.com:/",
        "https://a.example.com:080/", "https://a.example.com:-1/", "https://a.example.com:+80/",
        "https://a.example.com:http/", "https://a.example.com:443:80/", "https://a.example.com:99999/",
        "https://a.example.com:8_0/", "https://a.example.com:0x50/", "https://[::1]:/", "https://[::1]:0/",
        "https://fe80::1/", "https://a.example.com:4430000000000000000/", "https://127.0.0.1:*/",
    ],
    "is no name of a host": [
        "https://a..example.com/", "https://.example.com/", "https://-a.example.com/", "https://a-.example.com/",
        "https://a_b.example.com/", "https://*.example.com/", "https://a,b.example.com/", "https://a;b.example.com/",
        "https://a!b.example.com/", "https://a$b.example.com/", "https://a'b.example.com/", "https://(a).example.com/",
        "https://a=b.example.com/", "https://a|b.example.com/", "https://a~b.example.com/", "https://<a>.example.com/",
        'https://a"b.example.com/', "https://{a}.example.com/", "https://a`b`.example.com/", "https://a]/",
        "https://" + "a" * 64 + ".example.com/", "https://" + "a." * 122 + "example.com/", "https://a&b.example.com/",
        "https://a+b.example.com/",
    ],
    "characters that must be escaped": [
        "https://a.example.com/<x>", 'https://a.example.com/"', "https://a.example.com/{x}",
        "https://a.example.com/a|b", "https://a.example.com/^", "https://a.example.com/`id`", "https://a.example.com/%",
        "https://a.example.com/%2", "https://a.example.com/%zz", "https://a.example.com/?q=%",
        "https://a.example.com/[x]", "https://a.example.com/x%u0041", "https://[::1/64]/",
    ],
    "at most 2048": [
        "https://a.example.com/" + "x" * 2_048, "https://" + "a" * 4_000, "x" * 100_000,
    ],
    "a cloud's metadata address": [
        "http://169.254.169.254/latest/meta-data/", "https://169.254.169.254/", "http://169.254.169.254:80/",
        "http://169.254.169.253/", "http://169.254.169.123/", "http://169.254.170.2/v2/credentials",
        "http://169.254.170.23/v1/credentials", "http://169.254.0.23/", "http://100.100.100.200/latest/meta-data/",
        "http://168.63.129.16/metadata", "https://168.63.129.16/", "http://192.0.0.192/latest/",
        "http://[fd00:ec2::254]/latest/", "http://[fd00:ec2::23]/", "http://[FD00:EC2:0:0:0:0:0:254]/",
        "http://[fd20:ce::254]/",
    ],
    "an unspecified address": [
        "http://0.0.0.0/", "http://0.0.0.0:8080/", "http://0.0.0.1/", "http://0.255.255.255/", "http://[::]/",
        "http://[0:0:0:0:0:0:0:0]/", "http://[::0]/",
    ],
    "a multicast address": [
        "http://224.0.0.1/", "http://239.255.255.250:1900/", "https://232.1.2.3/", "http://[ff02::1]/",
        "http://[ff0e::1]/", "https://[FF05::2]/",
    ],
    "an IPv4 address in IPv6": [
        "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[0:0:0:0:0:ffff:127.0.0.1]/",
        "http://[::FFFF:169.254.169.254]/", "http://[::ffff:a9fe:a9fe]/",
        "http://[0000:0000:0000:0000:0000:ffff:0a00:0001]/", "https://[::ffff:8.8.8.8]/", "http://[::ffff:0.0.0.0]/",
        "http://[64:ff9b::127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[64:ff9b::a9fe:a9fe]/",
        "https://[64:ff9b::8.8.8.8]/", "http://[64:ff9b:1::a9fe:a9fe]/", "http://[64:ff9b:1:ffff::7f00:1]/",
        "http://[2002:7f00:1::]/", "http://[2002:a9fe:a9fe::1]/", "https://[2002:808:808::1]/",
        "http://[2001::7f00:1]/", "https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    ],
    "link-local address, which needs a zone": [
        "http://[fe80::1]/", "http://[fe80::a9fe:a9fe]/", "https://[febf::1]/", "http://[FE80:0:0:0:0:0:0:1]/",
        "http://[fec0::1]/",
    ],
    "a documentation address": [
        "https://192.0.2.1/", "https://198.51.100.7/", "https://203.0.113.255/", "https://[2001:db8::1]/",
        "https://[3fff::1]/",
    ],
    "a reserved address": [
        "https://240.0.0.1/", "https://255.255.255.255/", "https://250.1.2.3/", "https://192.0.0.8/",
        "https://192.88.99.1/", "http://[::2]/", "http://[::127.0.0.1]/", "http://[::7f00:1]/", "http://[::a9fe:a9fe]/",
        "http://[::ffff:0:127.0.0.1]/", "http://[100::1]/", "https://[2001:2::1]/", "https://[2001:20::1]/",
        "https://[4000::1]/", "https://[5f00::1]/", "https://[e000::1]/",
    ],
    "public address, and those are called by https only": [
        "http://8.8.8.8/", "http://1.1.1.1:8080/", "http://[2606:4700::1111]/", "http://93.184.216.34:443/",
    ],
}
# fmt: on
