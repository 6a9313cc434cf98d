"""What stands for PagerDuty, a mail server and a webhook on a test's machine: a program that writes down what it is sent."""

TAKEN = "/run/taken.jsonl"
ADDRESSES = "127.0.0.1 events.pagerduty.com mail.test pager.test\n"
NAMES = ("events.pagerduty.com", "mail.test")
USER = "omniwatch"
PROGRAM = f"""\
import base64, http.server, json, socketserver, ssl, threading, time

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/srv/taker.pem")

def take(kind, body):
    with open("{TAKEN}", "a") as file:
        file.write(json.dumps({{"t": time.time(), "kind": kind, "body": body}}) + "\\n")

class Web(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        take(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(202)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{{}}")

    def log_message(self, *words):
        pass

class Mail(socketserver.StreamRequestHandler):
    def handle(self):
        self.say("220 mail.test")
        login = None
        while line := self.rfile.readline():
            word, _, rest = line.decode().strip().partition(" ")
            if word == "EHLO":
                offers = "AUTH PLAIN" if isinstance(self.connection, ssl.SSLSocket) else "STARTTLS"
                self.say("250-mail.test\\r\\n250 " + offers)
            elif word == "STARTTLS":
                self.say("220 go")
                self.connection = context.wrap_socket(self.connection, server_side=True)
                self.rfile = self.connection.makefile("rb")
            elif word == "AUTH":
                login = base64.b64decode(rest.split()[1]).decode().split("\\0")[1:]
                self.say("235 welcome")
            elif word == "DATA":
                self.say("354 go")
                lines = []
                while (text := self.rfile.readline()) not in (b".\\r\\n", b""):
                    lines.append(text.decode())
                take("mail", {{"login": login, "text": "".join(lines)}})
                self.say("250 taken")
            elif word == "QUIT":
                self.say("221 bye")
                return
            else:
                self.say("250 fine")

    def say(self, text):
        self.connection.sendall((text + "\\r\\n").encode())

class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True

pagerduty = Server(("127.0.0.1", 443), Web)
pagerduty.socket = context.wrap_socket(pagerduty.socket, server_side=True)
for server in (pagerduty, Server(("127.0.0.1", 587), Mail), Server(("127.0.0.1", 8099), Web)):
    threading.Thread(target=server.serve_forever).start()
"""
